-- Rows of the registered batch that are not used: into quarantine, or kept as late.
-- The same row a second time (an overlapping range) is a duplicate.
DROP TABLE IF EXISTS temp.aside;
CREATE TEMP TABLE aside AS
SELECT
    s.row_id,
    s.fate,
    coalesce(b.raw, CAST(json_merge_patch(
        to_json(b), '{"row_id":null,"part":null,"line":null,"parse_error":null,"raw":null}'
    ) AS VARCHAR)) AS row_json
FROM split AS s
JOIN batch AS b ON b.row_id = s.row_id
WHERE s.fate IN ('quarantined', 'late');
ALTER TABLE temp.aside ADD COLUMN id VARCHAR;
UPDATE temp.aside SET id = md5($table || fate || row_json);
UPDATE temp.split SET fate = 'duplicate'
WHERE row_id IN (
    SELECT a.row_id FROM temp.aside AS a
    WHERE a.id IN (SELECT quarantine_id FROM quarantine UNION ALL SELECT late_id FROM late_rows)
    UNION ALL
    SELECT row_id FROM (
        SELECT row_id, row_number() OVER (PARTITION BY id ORDER BY row_id) AS n FROM temp.aside
    ) WHERE n > 1
);
INSERT INTO quarantine (
    quarantine_id, batch_id, table_name, source, line, expectation, column_name, value, reason, row_json, quarantined_at
)
SELECT a.id, p.batch_id, $table, p.source, s.line, s.expectation, s.column_name, s.value, s.reason, a.row_json, $now
FROM temp.split AS s
JOIN temp.aside AS a ON a.row_id = s.row_id
JOIN parts AS p ON p.part = s.part
WHERE s.fate = 'quarantined';
INSERT INTO late_rows (late_id, batch_id, table_name, source, line, ts, row_json, kept_at, early)
SELECT
    a.id, p.batch_id, $table, p.source, s.line, TRY_CAST(a.row_json->>'$.ts' AS TIMESTAMPTZ), a.row_json, $now,
    coalesce(s.expectation = 'early', false)
FROM temp.split AS s
JOIN temp.aside AS a ON a.row_id = s.row_id
JOIN parts AS p ON p.part = s.part
WHERE s.fate = 'late';
