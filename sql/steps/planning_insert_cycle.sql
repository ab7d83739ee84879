-- A cycle is begun.
INSERT INTO cycles (cycle_id, window_start, revision, reason, state, begun_at)
VALUES ($cycle_id, $window_start, $revision, $reason, $state, $begun_at);
