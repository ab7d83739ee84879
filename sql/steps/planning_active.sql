-- Every cycle that somebody has begun and not ended, with who holds it, oldest first.
SELECT c.cycle_id, c.window_start, c.revision, c.state,
       k.token, k.host, k.boot, k.pid, k.process_started, k.heartbeat_at
FROM cycles AS c
JOIN cycle_claims AS k USING (cycle_id)
WHERE c.state IN ('queued', 'planning', 'planned')
ORDER BY c.window_start, c.revision;
