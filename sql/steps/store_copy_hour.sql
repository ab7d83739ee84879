COPY (SELECT * FROM {table} WHERE ts >= $range_from AND ts < $range_to)
TO $target (FORMAT parquet, COMPRESSION zstd);
