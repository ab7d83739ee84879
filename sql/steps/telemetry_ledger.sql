-- One row of the ledger for each part of the registered batch; what it gives are those rows.
DROP TABLE IF EXISTS temp.counted;
CREATE TEMP TABLE counted AS
WITH fates AS (
    SELECT
        c.part,
        count(*) AS rows_in,
        count(*) FILTER (s.fate IS NULL) AS rows_clean,
        count(*) FILTER (s.fate = 'quarantined') AS rows_quarantined,
        count(*) FILTER (s.fate = 'duplicate') AS rows_duplicate,
        count(*) FILTER (s.fate = 'late') AS rows_late
    FROM checked AS c
    LEFT JOIN temp.split AS s ON s.row_id = c.row_id
    GROUP BY c.part
)
SELECT p.part, coalesce(COLUMNS(f.* EXCLUDE (part)), 0)
FROM parts AS p
LEFT JOIN fates AS f ON f.part = p.part;
INSERT INTO ingest_batches
SELECT
    p.batch_id, p.source, $table, p.range_from, p.range_to, p.checksum,
    c.rows_in, c.rows_clean, c.rows_quarantined, c.rows_duplicate, c.rows_late,
    CASE
        WHEN r.part IS NOT NULL THEN 'refused'
        WHEN c.rows_quarantined > 0 OR $warned THEN 'warned'
        ELSE 'accepted'
    END,
    nullif(concat_ws('; ', r.reason, p.detail), ''),
    $now
FROM parts AS p
JOIN temp.counted AS c ON c.part = p.part
LEFT JOIN refused AS r ON r.part = p.part;
SELECT p.part, c.rows_in, c.rows_clean, c.rows_quarantined, c.rows_duplicate, c.rows_late
FROM parts AS p
JOIN temp.counted AS c ON c.part = p.part
ORDER BY p.part
