-- Plans whose id begins so, newest first.
SELECT plan_id
FROM plans
WHERE starts_with(plan_id, $prefix)
ORDER BY created_at DESC
LIMIT 3;
