-- The cycle that a run with this key has claimed before.
SELECT c.window_start, c.revision
FROM cycle_claims AS k
JOIN cycles AS c USING (cycle_id)
WHERE k.request_key = $request_key
ORDER BY c.window_start DESC, c.revision DESC
LIMIT 1;
