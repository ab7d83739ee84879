-- One plan.
SELECT plan_id, cycle_id, plan_json, problem_sha256, emitted_at FROM plans WHERE plan_id = $plan_id;
