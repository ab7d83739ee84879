-- One plan as it was stored.
SELECT plan_id, cycle_id, plan_json FROM plans WHERE plan_id = $plan_id;
