-- A cycle goes on.
UPDATE cycles SET state = $state, detail = $detail WHERE cycle_id = $cycle_id;
