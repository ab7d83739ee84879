-- One row for each plan that was only advised: planned watts against what the cluster really drew
-- in the plan's window, once it is over; newest first.
SELECT
    e.plan_id,
    e.cycle_id,
    c.window_start,
    p.power_w AS planned_w,
    w.measured_w,
    w.measured_w - p.power_w AS saved_w,
    (w.measured_w - p.power_w) * w.measured_s AS saved_j
FROM executions AS e
JOIN plans AS p USING (plan_id)
JOIN cycles AS c ON c.cycle_id = e.cycle_id
LEFT JOIN windows AS w ON w.window_start = c.window_start AND w.over
WHERE e.state IN ('advised', 'dry_run')
ORDER BY c.window_start DESC, c.revision DESC
LIMIT $limit;
