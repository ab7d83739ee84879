-- One row: the plan that runs, the newest that was handed over. Window and revision order plans, not
-- clocks: the embedded cluster's clock stands still within a window.
CREATE OR REPLACE VIEW running_plan AS
SELECT p.plan_id, p.cycle_id, c.window_start, c.revision, p.plan_json, p.power_w, p.emitted_at
FROM plans AS p
JOIN cycles AS c USING (cycle_id)
WHERE p.emitted_at IS NOT NULL
ORDER BY c.window_start DESC, c.revision DESC
LIMIT 1;
