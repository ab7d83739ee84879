-- Plan history with gap and seconds. One row for each plan, the newest first.
-- penalties are the rest of the cost: waiting, moves and switches, less the credit for work ahead.
-- parameter plans BIGINT 50
SELECT
    created_at, cycle_id, reason, status, solver, round(solve_s, 3) AS solve_s, round(gap, 5) AS gap,
    round(power_w, 1) AS power_w, round(cost_w - power_w, 1) AS penalties, running, waiting, moves, stops, switches,
    cycle_state
FROM stg_plans
ORDER BY window_start DESC, revision DESC
LIMIT $plans;
