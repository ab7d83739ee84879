-- Rows of the quarantine, newest first; `total` is how many there are without the limit.
SELECT
    quarantine_id, table_name, source, line, expectation, column_name, value, reason, status, batch_id, quarantined_at,
    count(*) OVER () AS total
FROM quarantine
WHERE ($table IS NULL OR table_name = $table)
    AND ($source IS NULL OR source = $source)
    AND ($batch IS NULL OR batch_id = $batch)
    AND ($status = 'all' OR status = $status)
ORDER BY quarantined_at DESC, source, line
LIMIT $limit
