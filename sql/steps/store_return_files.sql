-- Files that were hidden as too old and are not: they count again.
UPDATE sample_files SET retired_at = NULL, expired_s = NULL
WHERE expired_s IS NOT NULL AND list_contains($files, file);
