-- One row for each kind of source (a folder of the spool, prometheus, records): rows taken in so far,
-- by what became of them.
SELECT split_part(source, '/', 1) AS source, sum(rows_clean)::BIGINT AS clean,
       sum(rows_quarantined)::BIGINT AS quarantined, sum(rows_duplicate)::BIGINT AS duplicate,
       sum(rows_late)::BIGINT AS late, count(*) FILTER (WHERE status = 'refused') AS refused
FROM ingest_batches
GROUP BY ALL
ORDER BY source;
