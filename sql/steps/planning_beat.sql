-- The holder is alive.
UPDATE cycle_claims SET heartbeat_at = $heartbeat_at WHERE cycle_id = $cycle_id AND token = $token;
