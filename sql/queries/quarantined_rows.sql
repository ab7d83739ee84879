-- Quarantined rows. One row for each contract (table and expectation) and reason.
SELECT
    table_name,
    expectation,
    column_name,
    reason,
    count(*) AS "rows",
    count(*) FILTER (status = 'held') AS held,
    max(quarantined_at) AS newest
FROM quarantine
GROUP BY ALL
ORDER BY "rows" DESC, table_name, expectation, reason;
