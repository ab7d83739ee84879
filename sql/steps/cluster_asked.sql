-- Plans that were asked about and not answered, newest first.
SELECT plan_id, arg_max(why, ts) FILTER (decision = 'asked') AS why, min(ts) AS asked_at
FROM approvals
GROUP BY plan_id
HAVING count(*) FILTER (decision <> 'asked') = 0
ORDER BY asked_at DESC;
