SELECT sum("rows")::BIGINT AS "rows" FROM sample_files
WHERE retired_at IS NULL AND list_contains($files, file);
