-- One row for each of the newest windows with a plan that was handed over, oldest first: planned
-- and measured draw, energy, share of promises kept. Measured: the GPUs' mean power in the window
-- and what the servers themselves draw.
WITH planned AS (
    SELECT c.window_start, p.plan_id, p.power_w, p.running, p.waiting, p.gap
    FROM plans AS p
    JOIN cycles AS c USING (cycle_id)
    WHERE p.emitted_at IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY c.window_start ORDER BY c.revision DESC) = 1
    ORDER BY c.window_start DESC
    LIMIT $rows
),
base AS (
    SELECT plan_id, max(base_w) AS base_w FROM bases GROUP BY plan_id
),
by_gpu AS (
    SELECT w.window_start, s.server_id, s.gpu_index, avg(s.power_w) AS power_w
    FROM planned AS w
    JOIN gpu_samples AS s
      ON s.ts >= w.window_start AND s.ts < w.window_start + to_seconds($window_s)
    GROUP BY ALL
),
measured AS (
    SELECT window_start, sum(power_w) AS gpus_w FROM by_gpu GROUP BY window_start
),
promised AS (
    SELECT w.window_start, l.job_id, max(l.required_throughput) AS required
    FROM planned AS w
    JOIN placements AS l USING (plan_id)
    WHERE l.required_throughput > 0
    GROUP BY ALL
),
reached AS (
    SELECT p.window_start, p.job_id, p.required, sum(o.throughput) AS throughput
    FROM promised AS p
    JOIN observations AS o
      ON o.job_id = p.job_id
     AND o.window_start >= p.window_start
     AND o.window_start < p.window_start + to_seconds($window_s)
    GROUP BY ALL
),
kept AS (
    SELECT window_start, avg(CAST(throughput >= 0.99 * required AS DOUBLE)) AS kept
    FROM reached
    GROUP BY window_start
)
SELECT w.window_start, w.plan_id, w.power_w AS planned_w, w.running, w.waiting, w.gap,
       m.gpus_w + coalesce(b.base_w, 0) AS measured_w,
       (m.gpus_w + coalesce(b.base_w, 0)) * $window_s / 3.6e6 AS energy_kwh,
       k.kept
FROM planned AS w
LEFT JOIN base AS b USING (plan_id)
LEFT JOIN measured AS m USING (window_start)
LEFT JOIN kept AS k USING (window_start)
ORDER BY w.window_start;
