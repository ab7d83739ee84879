-- Every word about one plan's approval, oldest first.
SELECT plan_id, decision, who, why, ts
FROM approvals
WHERE plan_id = $plan_id
ORDER BY ts, decision <> 'asked', rowid;  -- a question comes before its answer, also at one moment
