-- One row for each table, expectation and column that holds rows back.
SELECT table_name, expectation, column_name, count(*) AS held, min(reason) AS example,
       min(quarantined_at) AS since
FROM quarantine
WHERE status = 'held'
GROUP BY ALL
ORDER BY held DESC, table_name, expectation;
