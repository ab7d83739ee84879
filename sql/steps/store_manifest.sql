SELECT file, table_name, "rows", bytes, retired_at FROM sample_files ORDER BY file;
