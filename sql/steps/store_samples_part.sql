-- One set of Parquet files, as it is joined to the hot rows.
(SELECT * FROM read_parquet([{files}], hive_partitioning = false))
