-- Helper columns of observations: one row for each row of the registered `batch`.
-- `speed_change` compares with what was observed of the class there before (of the owner's own jobs, where there are any),
-- while the GPUs drew the same: more or fewer steps with the same power are no measurement.
WITH earlier AS (
    SELECT
        b.row_id, coalesce(j.owner, '') = coalesce(w.owner, '') AS own,
        median(o.throughput) AS throughput, median(o.power_w) AS power_w
    FROM batch AS b
    JOIN observations AS o
        ON o.job_class = b.job_class AND o.gpu_type = b.gpu_type AND o.gpus = b.gpus
        AND o.partner_class IS NOT DISTINCT FROM b.partner_class AND o.unit = b.unit
        AND o.window_start < b.window_start AND o.window_start >= b.window_start - INTERVAL 14 DAY
    LEFT JOIN jobs AS j ON j.job_id = b.job_id
    LEFT JOIN jobs AS w ON w.job_id = o.job_id
    GROUP BY ALL
),
before AS (
    SELECT row_id, arg_max(throughput, own) AS throughput, arg_max(power_w, own) AS power_w
    FROM earlier
    GROUP BY row_id
)
SELECT
    b.* EXCLUDE (idle_w),
    t.gpu_type IS NOT NULL OR EXISTS (FROM servers AS s WHERE s.gpu_type = b.gpu_type) AS type_known,
    t.max_w * 1.15 * b.gpus AS power_allowed_w,
    epoch(b.window_end) - epoch(b.window_start) AS seconds,
    b.throughput_spread / b.throughput AS spread_share,
    t.peak_flops * b.gpus / nullif(j.flops_per_step, 0) AS peak_throughput,
    -- On a shared GPU half of its draw is each job's.
    CASE WHEN greatest(b.power_w, p.power_w) - b.idle_w <= 1.4 * greatest(least(b.power_w, p.power_w) - b.idle_w, 0.05 * b.idle_w)
        THEN b.throughput / p.throughput
    END AS speed_change,
    false AS is_copy
FROM (
    SELECT b.*, coalesce(t.idle_w, 0) * b.gpus * if(b.partner_class IS NULL, 1, 0.5) AS idle_w
    FROM batch AS b
    LEFT JOIN gpu_types AS t ON t.gpu_type = b.gpu_type
) AS b
LEFT JOIN gpu_types AS t ON t.gpu_type = b.gpu_type
LEFT JOIN jobs AS j ON j.job_id = b.job_id
LEFT JOIN before AS p ON p.row_id = b.row_id
