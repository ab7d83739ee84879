-- What is stored of job_events since a moment, newest first.
SELECT * EXCLUDE (batch_id) FROM job_events WHERE ts >= $since ORDER BY ts DESC LIMIT $limit
