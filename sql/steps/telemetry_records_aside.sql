-- Bad records of the registered batch into quarantine; those that are good again leave it.
DROP TABLE IF EXISTS temp.aside;
CREATE TEMP TABLE aside AS
SELECT
    b.row_id,
    CAST(json_merge_patch(
        to_json(b), '{"row_id":null,"part":null,"line":null,"parse_error":null,"raw":null}'
    ) AS VARCHAR) AS row_json,
    concat_ws('/', json_extract_string(to_json(b), '$.server_id'), json_extract_string(to_json(b), '$.gpu_index'),
        json_extract_string(to_json(b), '$.job_id')) AS name
FROM batch AS b;
UPDATE quarantine SET status = 'dropped', settled_at = $now
WHERE status = 'held' AND table_name = $table
    AND concat_ws('/', row_json->>'$.server_id', row_json->>'$.gpu_index', row_json->>'$.job_id')
        IN (SELECT name FROM temp.aside);
INSERT INTO quarantine (
    quarantine_id, batch_id, table_name, source, line, expectation, column_name, value, reason, row_json, quarantined_at
)
SELECT
    md5($table || s.fate || a.row_json), $batch_id, $table, 'records', s.line,
    s.expectation, s.column_name, s.value, s.reason, a.row_json, $now
FROM temp.split AS s
JOIN temp.aside AS a ON a.row_id = s.row_id
WHERE s.fate = 'quarantined'
QUALIFY row_number() OVER (PARTITION BY a.row_json ORDER BY s.row_id) = 1
ON CONFLICT DO UPDATE SET status = 'held', settled_at = NULL, batch_id = excluded.batch_id;
SELECT
    count(*) AS rows_in,
    count(*) FILTER (s.fate IS NULL) AS rows_clean,
    count(*) FILTER (s.fate = 'quarantined') AS rows_quarantined,
    count(*) FILTER (s.fate = 'duplicate') AS rows_duplicate,
    count(*) FILTER (s.fate = 'late') AS rows_late
FROM checked AS c
LEFT JOIN temp.split AS s ON s.row_id = c.row_id
