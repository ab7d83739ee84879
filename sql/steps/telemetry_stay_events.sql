-- Events of every job that had not ended before a moment, in the order they came.
WITH ended AS (
    SELECT job_id, max(ts) AS ts FROM job_events
    WHERE event IN ('started', 'moved', 'finished', 'failed', 'cancelled')
    GROUP BY job_id
    -- One that was started again is not over.
    HAVING arg_max(event, ts) IN ('finished', 'failed', 'cancelled')
)
SELECT e.job_id, epoch(e.ts) AS ts, e.event, e.server_id, e.gpus
FROM job_events AS e
LEFT JOIN ended AS d ON d.job_id = e.job_id
WHERE (d.ts IS NULL OR d.ts >= to_timestamp($since)) AND e.ts < to_timestamp($until)
ORDER BY e.ts, e.rowid
