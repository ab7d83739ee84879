-- One row for each job that plans moved or stopped since a moment: how often. A job that is held and
-- placed again is disturbed once.
WITH carried_out AS (
    SELECT plan_id, action_id
    FROM action_events
    WHERE ts > $since
    GROUP BY plan_id, action_id
    HAVING bool_or(state = 'sent') AND arg_max(state, seq) IN ('sent', 'confirmed')
)
SELECT actions.job_id, count(*) AS disruptions
FROM actions
JOIN carried_out USING (plan_id, action_id)
WHERE actions.kind IN ('move', 'hold')
GROUP BY actions.job_id;
