-- The newest word about each plan that was tried, newest first, with counts of its actions.
WITH counts AS (
    SELECT
        plan_id,
        count(*) AS actions,
        count(*) FILTER (state = 'confirmed') AS confirmed,
        count(*) FILTER (state = 'failed') AS failed,
        count(*) FILTER (state = 'skipped') AS skipped
    FROM journal
    GROUP BY plan_id
)
SELECT
    executions.plan_id,
    executions.cycle_id,
    executions.manager,
    executions.state,
    executions.detail,
    executions.begun_at,
    executions.changed_at,
    coalesce(counts.actions, 0) AS actions,
    coalesce(counts.confirmed, 0) AS confirmed,
    coalesce(counts.failed, 0) AS failed,
    coalesce(counts.skipped, 0) AS skipped
FROM executions
LEFT JOIN counts USING (plan_id)
ORDER BY executions.window_start DESC NULLS LAST, executions.revision DESC, executions.changed_at DESC
LIMIT $limit;
