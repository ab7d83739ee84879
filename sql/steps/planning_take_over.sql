-- Somebody else holds a cycle from now on; its plan, if it is stored, stays.
UPDATE cycle_claims
SET token = $token, host = $host, boot = $boot, pid = $pid, process_started = $process_started,
    heartbeat_at = $heartbeat_at
WHERE cycle_id = $cycle_id;
