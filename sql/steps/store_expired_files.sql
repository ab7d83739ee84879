SELECT file FROM sample_files WHERE retired_at IS NULL AND range_to <= $oldest;
