-- A window that passed without a plan of its own.
INSERT INTO cycles (cycle_id, window_start, revision, reason, state, detail, begun_at, ended_at)
VALUES ($cycle_id, $window_start, 0, 'schedule', 'missed', $detail, $now, $now)
ON CONFLICT (cycle_id) DO NOTHING;
