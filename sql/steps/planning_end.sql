-- A cycle has come to an end.
UPDATE cycles
SET state = $state, detail = $detail, degraded = $degraded, seconds = $seconds, ended_at = $ended_at
WHERE cycle_id = $cycle_id;
