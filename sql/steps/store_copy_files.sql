-- Several files of a day into one.
COPY (SELECT * FROM read_parquet($files, hive_partitioning = false, union_by_name = true))
TO $target (FORMAT parquet, COMPRESSION zstd);
