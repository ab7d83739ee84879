-- When the newest accepted row of telemetry was measured; NULL when there has never been one.
SELECT max(ts) AS ts
FROM (
    SELECT max(ts) AS ts FROM gpu_samples
    UNION ALL
    SELECT max(ts) AS ts FROM job_progress
);
