-- The registered batch with its helper columns, in the order of its rows.
SELECT * FROM checked ORDER BY row_id
