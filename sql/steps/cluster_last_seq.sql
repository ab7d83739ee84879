-- The last number given to an event of one plan.
SELECT greatest(
    coalesce((SELECT max(seq) FROM action_events WHERE plan_id = $plan_id), 0),
    coalesce((SELECT max(seq) FROM execution_events WHERE plan_id = $plan_id), 0)
) AS seq;
