-- What is stored of gpu_samples since a moment, newest first.
SELECT * EXCLUDE (batch_id) FROM gpu_samples WHERE ts >= $since ORDER BY ts DESC LIMIT $limit
