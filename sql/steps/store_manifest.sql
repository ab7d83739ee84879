-- Every file of samples, those that count and those that are retired, oldest first.
SELECT file, table_name, range_from, range_to, "rows", bytes, retired_at, expired_s FROM sample_files
ORDER BY range_from, file;
