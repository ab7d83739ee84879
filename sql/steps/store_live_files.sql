-- The Parquet files that count for a table, oldest first.
SELECT file FROM sample_files WHERE table_name = $table AND retired_at IS NULL ORDER BY range_from, file;
