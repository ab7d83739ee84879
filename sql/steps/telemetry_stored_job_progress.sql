-- What is stored of job_progress since a moment, newest first.
SELECT * EXCLUDE (batch_id), CAST(NULL AS VARCHAR) AS written_by FROM job_progress WHERE ts >= $since ORDER BY ts DESC LIMIT $limit
