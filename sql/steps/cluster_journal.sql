-- The actions of one plan with how far each got, in their order.
SELECT action_id, kind, job_id, server_id, state, reason, intended_at, sent_at, times_sent, settled_at, action_json
FROM journal
WHERE plan_id = $plan_id
ORDER BY ordinal;
