-- One row for each plan: its window and revision, the newest word about it, and when it was first tried.
CREATE OR REPLACE VIEW executions AS
WITH words AS (
    SELECT
        plan_id,
        any_value(cycle_id) AS cycle_id,
        any_value(manager) AS manager,
        arg_max(state, seq) AS state,
        arg_max(detail, seq) AS detail,
        min(ts) AS begun_at,
        max(ts) AS changed_at
    FROM execution_events
    GROUP BY plan_id
)
SELECT words.*, cycles.window_start, cycles.revision
FROM words
LEFT JOIN cycles USING (cycle_id);
