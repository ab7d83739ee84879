-- One row for each kind of source (a folder of the spool, prometheus, records): rows taken in so far,
-- by what became of them; batches that were dropped from the ledger as too old count too.
WITH fates AS (
    SELECT split_part(source, '/', 1) AS source, rows_clean AS clean, rows_quarantined AS quarantined,
           rows_duplicate AS duplicate, rows_late AS late, (status = 'refused')::BIGINT AS refused
    FROM ingest_batches
    UNION ALL
    SELECT label, coalesce(clean, 0), coalesce(quarantined, 0), coalesce(duplicate, 0), coalesce(late, 0),
           coalesce(refused, 0)
    FROM (
        PIVOT (SELECT label, fate, total FROM dropped_totals WHERE table_name = 'ingest_batches')
        ON fate IN ('clean', 'quarantined', 'duplicate', 'late', 'refused') USING sum(total) GROUP BY label
    )
)
SELECT source, sum(clean)::BIGINT AS clean, sum(quarantined)::BIGINT AS quarantined,
       sum(duplicate)::BIGINT AS duplicate, sum(late)::BIGINT AS late, sum(refused)::BIGINT AS refused
FROM fates
GROUP BY source
ORDER BY source;
