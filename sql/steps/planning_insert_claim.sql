-- Somebody holds a cycle.
INSERT INTO cycle_claims
    (cycle_id, token, request_key, request, host, boot, pid, process_started, heartbeat_at)
VALUES ($cycle_id, $token, $request_key, $request, $host, $boot, $pid, $process_started, $heartbeat_at);
