-- The plan that runs.
SELECT plan_id, cycle_id, plan_json, power_w, emitted_at FROM running_plan;
