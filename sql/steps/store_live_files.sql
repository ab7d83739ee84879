-- The Parquet files that count for a table, oldest first, with the columns they have.
SELECT file, columns FROM sample_files
WHERE table_name = $table AND retired_at IS NULL
ORDER BY range_from, file;
