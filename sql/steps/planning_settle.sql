-- What became of the plan of a cycle that had been planned before.
UPDATE cycles SET state = $state, detail = $detail, ended_at = $ended_at WHERE cycle_id = $cycle_id;
