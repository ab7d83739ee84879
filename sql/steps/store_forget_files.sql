DELETE FROM sample_files WHERE list_contains($files, file);
