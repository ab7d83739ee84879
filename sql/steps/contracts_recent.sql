-- Every expectation of the last runs, newest run first.
WITH runs AS (
    SELECT run_id, max(run_at) AS run_at FROM contract_runs GROUP BY run_id ORDER BY run_at DESC, run_id LIMIT $limit
)
SELECT c.*
FROM contract_runs AS c
SEMI JOIN runs AS r ON r.run_id = c.run_id
ORDER BY c.run_at DESC, c.run_id, c.success, c.level, c.expectation
