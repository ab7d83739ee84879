-- One row for each action: how far it got, and when it was intended, sent and settled.
CREATE OR REPLACE VIEW journal AS
WITH newest AS (
    SELECT
        plan_id,
        action_id,
        arg_max(state, seq) AS state,
        arg_max(reason, seq) AS reason,
        min(ts) FILTER (state = 'intended') AS intended_at,
        min(ts) FILTER (state = 'sent') AS sent_at,
        count(*) FILTER (state = 'sent') AS times_sent,
        max(ts) FILTER (state IN ('confirmed', 'failed', 'skipped')) AS settled_at
    FROM action_events
    GROUP BY plan_id, action_id
)
SELECT
    actions.plan_id,
    actions.action_id,
    actions.cycle_id,
    actions.ordinal,
    actions.kind,
    actions.job_id,
    actions.server_id,
    newest.state,
    newest.reason,
    newest.intended_at,
    newest.sent_at,
    newest.times_sent,
    newest.settled_at,
    actions.action_json
FROM actions
JOIN newest USING (plan_id, action_id);
