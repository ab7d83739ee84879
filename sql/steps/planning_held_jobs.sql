-- Jobs whose newest record broke its contract.
SELECT job_id
FROM (
    SELECT json_extract_string(row_json, '$.job_id') AS job_id, max(quarantined_at) AS held_at
    FROM quarantine
    WHERE table_name = 'jobs' AND status = 'held'
    GROUP BY 1
) AS held
LEFT JOIN jobs USING (job_id)
WHERE held.job_id IS NOT NULL AND (jobs.seen_at IS NULL OR jobs.seen_at < held.held_at)
ORDER BY 1;
