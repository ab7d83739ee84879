-- The newest word about one plan.
SELECT plan_id, cycle_id, manager, state, detail, begun_at, changed_at
FROM executions
WHERE plan_id = $plan_id;
