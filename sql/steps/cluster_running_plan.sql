-- The plan that runs.
SELECT plan_id FROM running_plan;
