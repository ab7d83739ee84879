-- Plans whose id begins so; one that is called exactly so comes first.
SELECT plan_id
FROM plans
WHERE starts_with(plan_id, $prefix)
ORDER BY plan_id
LIMIT 3;
