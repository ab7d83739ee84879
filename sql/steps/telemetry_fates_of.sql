-- The fate of each row of the registered batch.
SELECT row_id, fate, reason FROM temp.split ORDER BY row_id
