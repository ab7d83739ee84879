-- From here on the files do not count.
UPDATE sample_files SET retired_at = $at WHERE list_contains($files, file);
