-- The newest time that samples in the database or in Parquet speak of; NULL where there are none.
SELECT greatest(
    (SELECT max(ts) FROM gpu_samples),
    (SELECT max(ts) FROM job_progress),
    (SELECT max(range_to) FROM sample_files)
) AS newest;
