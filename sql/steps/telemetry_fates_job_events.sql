-- Which rows of the registered batch are in the table already; an event never comes too late.
SELECT
    c.row_id,
    EXISTS (
        FROM job_events AS t
        WHERE t.job_id = c.job_id AND t.ts = c.ts AND t.event = c.event AND t.server_id IS NOT DISTINCT FROM c.server_id
            AND t.gpus IS NOT DISTINCT FROM c.gpus
    ) AS known,
    false AND $late_s > 0 AS late
FROM checked AS c
WHERE known OR late
