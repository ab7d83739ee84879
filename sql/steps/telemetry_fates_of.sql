-- The fate of each row of the registered batch.
SELECT c.row_id, coalesce(s.fate, 'clean') AS fate, s.reason
FROM checked AS c
LEFT JOIN temp.split AS s ON s.row_id = c.row_id
ORDER BY c.row_id
