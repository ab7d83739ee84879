-- The state of the cluster one plan was made for.
SELECT basis_json, ts
FROM bases
WHERE plan_id = $plan_id
ORDER BY ts
LIMIT 1;
