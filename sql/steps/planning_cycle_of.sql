-- The cycle that one plan was made for, and what was asked of it.
SELECT c.cycle_id, c.window_start, c.revision, k.request
FROM plans AS p
JOIN cycles AS c USING (cycle_id)
LEFT JOIN cycle_claims AS k USING (cycle_id)
WHERE p.plan_id = $plan_id;
