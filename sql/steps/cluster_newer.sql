-- The plan that runs, where it is newer than this one.
SELECT r.plan_id
FROM running_plan AS r
JOIN plans AS p ON p.plan_id = $plan_id
JOIN cycles AS c ON c.cycle_id = p.cycle_id
WHERE (r.window_start, r.revision) > (c.window_start, c.revision);
