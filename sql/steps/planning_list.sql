-- The newest cycles, with what came of them.
SELECT c.cycle_id, c.window_start, c.revision, c.reason, c.state, c.detail, c.degraded, c.seconds,
       c.begun_at, c.ended_at, r.plan_id, r.running, r.waiting, r.power_w, r.saved_w, r.moves, r.stops
FROM cycles AS c
LEFT JOIN cycle_results AS r USING (cycle_id)
WHERE NOT $missed OR c.state = 'missed'
ORDER BY c.window_start DESC, c.revision DESC
LIMIT $rows;
