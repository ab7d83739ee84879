-- What is held in quarantine, by table and reason.
SELECT table_name, reason, count(*) AS rows
FROM quarantine
WHERE status = 'held'
GROUP BY table_name, reason
ORDER BY rows DESC, table_name, reason
LIMIT 100
