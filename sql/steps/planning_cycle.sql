-- One cycle with its claim.
SELECT c.cycle_id, c.window_start, c.revision, c.state, c.detail, c.degraded, c.seconds,
       k.token, k.request, k.host, k.boot, k.pid, k.process_started, k.heartbeat_at, k.plan_id
FROM cycles AS c
LEFT JOIN cycle_claims AS k USING (cycle_id)
WHERE c.cycle_id = $cycle_id;
