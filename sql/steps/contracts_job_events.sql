-- Helper columns of job events: one row for each row of the registered `batch`.
SELECT
    b.*,
    EXISTS (FROM jobs AS j WHERE j.job_id = b.job_id) OR NOT EXISTS (FROM jobs) AS job_known,
    b.server_id IS NULL OR s.server_id IS NOT NULL OR NOT EXISTS (FROM servers) AS server_known,
    b.gpus IS NULL OR s.server_id IS NULL
        OR (len(b.gpus) > 0 AND list_min(b.gpus) >= 0 AND list_max(b.gpus) < s.gpus) AS gpus_known,
    epoch(b.ts) - epoch(f.now) AS ahead_s,
    b.event IN ('started', 'moved') AND (b.server_id IS NULL OR b.gpus IS NULL) AS place_missing,
    row_number() OVER (PARTITION BY b.job_id, b.ts, b.event, b.server_id, b.gpus ORDER BY b.row_id) > 1 AS is_copy
FROM batch AS b
CROSS JOIN facts AS f
LEFT JOIN servers AS s ON s.server_id = b.server_id
