UNION ALL BY NAME SELECT * FROM read_parquet([{files}], hive_partitioning = false)
