-- Which rows of the registered batch are stored already (hot, or in Parquet too), and which come too late.
WITH edge AS (SELECT min(ts) AS lo, max(ts) AS hi FROM checked),
known AS (
    SELECT c.row_id
    FROM checked AS c
    SEMI JOIN (SELECT * FROM {table}, edge WHERE ts BETWEEN lo AND hi) AS t
        ON t.job_id = c.job_id AND t."rank" = c."rank" AND t.ts = c.ts AND t.attempt = c.attempt
        AND t.event IS NOT DISTINCT FROM c.event
)
SELECT
    c.row_id,
    k.row_id IS NOT NULL AS known,
    coalesce(c.ts < h.ts - to_seconds($late_s), false) AS late
FROM checked AS c
LEFT JOIN known AS k ON k.row_id = c.row_id
LEFT JOIN high_water AS h ON h.table_name = 'job_progress' AND h.entity = c.job_id
WHERE known OR late
