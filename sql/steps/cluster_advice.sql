-- One row for each plan that was only advised: planned watts against what the cluster really drew
-- in the plan's window (measured GPUs plus the servers themselves), newest first.
WITH advised AS (
    SELECT executions.plan_id, executions.cycle_id, cycles.window_start, plans.cost_w, plans.power_w AS planned_w, bases.base_w
    FROM executions
    JOIN plans USING (plan_id)
    JOIN cycles ON cycles.cycle_id = executions.cycle_id
    LEFT JOIN bases ON bases.plan_id = executions.plan_id
    WHERE executions.state IN ('advised', 'dry_run')
),
gpu_means AS (
    SELECT advised.plan_id, gpu_samples.server_id, gpu_samples.gpu_index, avg(gpu_samples.power_w) AS gpu_w
    FROM advised
    JOIN gpu_samples_all AS gpu_samples
        ON gpu_samples.ts >= advised.window_start
        AND gpu_samples.ts < advised.window_start + to_seconds($window_s)
    WHERE gpu_samples.power_w IS NOT NULL
    GROUP BY advised.plan_id, gpu_samples.server_id, gpu_samples.gpu_index
),
measured AS (
    SELECT plan_id, sum(gpu_w) AS gpus_w
    FROM gpu_means
    GROUP BY plan_id
)
SELECT
    advised.plan_id,
    advised.cycle_id,
    advised.window_start,
    advised.planned_w,
    measured.gpus_w + advised.base_w AS measured_w,
    measured.gpus_w + advised.base_w - advised.planned_w AS saved_w,
    (measured.gpus_w + advised.base_w - advised.planned_w) * $window_s AS saved_j
FROM advised
LEFT JOIN measured USING (plan_id)
ORDER BY advised.window_start DESC, advised.plan_id
LIMIT $limit;
