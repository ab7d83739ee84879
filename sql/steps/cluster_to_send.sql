-- The newest plan that is still to be sent and may be: not older than the one that runs, not at its
-- end, and approved where a person was asked.
SELECT p.plan_id
FROM plans AS p
JOIN cycles AS c USING (cycle_id)
LEFT JOIN running_plan AS r ON true
LEFT JOIN executions AS e ON e.plan_id = p.plan_id
LEFT JOIN questions AS q ON q.plan_id = p.plan_id
WHERE p.status <> 'infeasible'
  AND (r.plan_id IS NULL OR (c.window_start, c.revision) >= (r.window_start, r.revision))
  AND coalesce(e.state NOT IN ('done', 'rejected', 'abandoned', 'superseded'), true)
  AND coalesce(q.decision = 'approved', true)
ORDER BY c.window_start DESC, c.revision DESC
LIMIT 1;
