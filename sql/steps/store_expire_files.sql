-- From here on the files do not count, because they are too old.
UPDATE sample_files SET retired_at = $at, expired_s = $steady_s WHERE list_contains($files, file);
