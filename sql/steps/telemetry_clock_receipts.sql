-- How far behind each server's newest sample was at the least, in the batches since the last settling.
SELECT server_id, min(behind_s) AS behind_s
FROM clock_receipts
GROUP BY server_id
ORDER BY server_id
