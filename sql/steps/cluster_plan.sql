-- One plan as it was stored; an empty id means the newest one.
SELECT plan_id, cycle_id, plan_json, power_w, created_at
FROM plans
WHERE plan_id = $plan_id OR $plan_id = ''
ORDER BY created_at DESC, plan_id
LIMIT 1;
