-- The newest cycle that made a plan.
SELECT c.window_start, c.seconds, c.degraded, p.gap, p.power_w, p.running, p.waiting, p.solve_s,
       r.estimate_error, r.data_age_s, r.moves, r.stops
FROM cycles AS c
JOIN plans AS p USING (cycle_id)
LEFT JOIN cycle_results AS r USING (cycle_id)
ORDER BY c.window_start DESC, c.revision DESC
LIMIT 1;
