-- One row for each plan, with its cycle and how many moves, stops and switches it asks for.
CREATE OR REPLACE VIEW stg_plans AS
WITH counted AS (
    SELECT
        plan_id,
        count(*) FILTER (kind = 'move') AS moves,
        count(*) FILTER (kind = 'stop') AS stops
    FROM moves
    GROUP BY plan_id
),
switched AS (
    SELECT plan_id, count(*) FILTER (action IN ('on', 'off')) AS switches
    FROM power_actions
    GROUP BY plan_id
)
SELECT
    p.* EXCLUDE (plan_json),
    c.window_start,
    c.revision,
    c.reason,
    c.state AS cycle_state,
    coalesce(counted.moves, 0) AS moves,
    coalesce(counted.stops, 0) AS stops,
    coalesce(switched.switches, 0) AS switches
FROM plans AS p
LEFT JOIN cycles AS c USING (cycle_id)
LEFT JOIN counted USING (plan_id)
LEFT JOIN switched USING (plan_id);
