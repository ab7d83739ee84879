-- The plan of a cycle is stored.
UPDATE cycle_claims SET plan_id = $plan_id WHERE cycle_id = $cycle_id;
