-- The names of all files of samples, in a database of any GOGH.
SELECT file FROM sample_files ORDER BY file;
