-- Plan history with gap and seconds. One row for each plan, the newest first.
-- parameter plans BIGINT 50
SELECT
    created_at, cycle_id, reason, status, solver, round(solve_s, 3) AS solve_s, round(gap, 5) AS gap,
    round(cost_w, 1) AS cost_w, round(power_w, 1) AS power_w, running, waiting, moves, stops, switches,
    cycle_state
FROM stg_plans
ORDER BY created_at DESC, plan_id
LIMIT $plans;
