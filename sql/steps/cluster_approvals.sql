-- The question about one plan and its answer.
SELECT
    plan_id,
    decision,
    coalesce(who, 'gogh') AS who,
    coalesce(why, asks) AS why,
    coalesce(decided_at, asked_at) AS "at",
    asked_at
FROM questions
WHERE plan_id = $plan_id;
