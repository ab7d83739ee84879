-- Servers and jobs whose newest record is held in quarantine.
SELECT
    table_name,
    CASE
        -- Rows of other tables may be no JSON at all, and filters are not always applied first.
        WHEN NOT json_valid(row_json) THEN NULL
        WHEN table_name = 'jobs' THEN row_json->>'$.job_id'
        ELSE row_json->>'$.server_id'
    END AS id,
    any_value(reason) AS reason
FROM quarantine
WHERE status = 'held' AND table_name IN ('servers', 'gpus', 'jobs')
GROUP BY ALL
HAVING id IS NOT NULL
