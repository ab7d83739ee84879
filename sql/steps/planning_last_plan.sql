-- The newest plan that was handed over: the one that runs.
SELECT p.plan_id, p.cycle_id, p.plan_json, p.power_w, p.emitted_at
FROM plans AS p
JOIN cycles AS c USING (cycle_id)
WHERE p.emitted_at IS NOT NULL
ORDER BY c.window_start DESC, c.revision DESC
LIMIT 1;
