-- One row for each plan that a person was asked about: the question, and its answer once there is one.
CREATE OR REPLACE VIEW questions AS
WITH words AS (
    SELECT
        plan_id,
        min(ts) FILTER (decision = 'asked') AS asked_at,
        any_value(why) FILTER (decision = 'asked') AS asks,
        coalesce(any_value(decision) FILTER (decision <> 'asked'), 'asked') AS decision,
        any_value(who) FILTER (decision <> 'asked') AS who,
        any_value(why) FILTER (decision <> 'asked') AS why,
        any_value(ts) FILTER (decision <> 'asked') AS decided_at
    FROM approvals
    GROUP BY plan_id
),
forms AS (
    SELECT plan_id, arg_max(run_id, rowid) AS run_id FROM approval_forms GROUP BY plan_id
)
SELECT
    words.plan_id,
    cycles.cycle_id,
    cycles.window_start,
    cycles.revision,
    words.* EXCLUDE (plan_id),
    forms.run_id
FROM words
LEFT JOIN forms USING (plan_id)
LEFT JOIN plans USING (plan_id)
LEFT JOIN cycles USING (cycle_id);
