-- Rows of one table that came before their time, and whose time has come; the oldest first.
SELECT late_id, row_json, row_json->>'$.written_by' AS written_by
FROM late_rows
WHERE early AND table_name = $table AND ts <= $until
ORDER BY ts, late_id
LIMIT $limit
