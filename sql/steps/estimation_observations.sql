-- One row for each observation with the declared descriptors of its class, as a throughput table.
WITH described AS (
    SELECT
        job_class,
        any_value(model) AS model,
        any_value(batch_size) AS batch_size,
        any_value(kind) AS kind,
        any_value(family) AS family,
        any_value("precision") AS "precision",
        any_value(parameters) AS parameters,
        any_value(flops_per_step) AS flops_per_step,
        any_value(bytes_per_step) AS bytes_per_step,
        any_value(memory_bytes) AS memory_bytes,
        count(DISTINCT owner) AS owners
    FROM jobs
    GROUP BY job_class
),
-- A class counts in the unit it was last reported in; older rows in another unit are left out.
units AS (
    SELECT job_class, arg_max(unit, window_end) AS unit
    FROM observations
    GROUP BY job_class
)
SELECT
    o.gpu_type,
    o.job_class AS job_type,
    d.model,
    d.batch_size,
    d.kind,
    d.family,
    d."precision",
    d.parameters,
    d.flops_per_step,
    d.bytes_per_step,
    d.memory_bytes,
    o.gpus AS scale_factor,
    o.partner_class AS partner_job_type,
    p.model AS partner_model,
    p.batch_size AS partner_batch_size,
    p.family AS partner_family,
    p.parameters AS partner_parameters,
    p.flops_per_step AS partner_flops_per_step,
    p.bytes_per_step AS partner_bytes_per_step,
    p.memory_bytes AS partner_memory_bytes,
    o.throughput,
    o.throughput_spread AS spread,
    o.samples,
    o.unit,
    CASE WHEN o.power_estimated THEN NULL ELSE o.power_w END AS power_w,
    o.power_limit_w,
    o.window_end,
    w.owner,
    coalesce(d.owners, 1) <= 1 AS alone
FROM observations AS o
LEFT JOIN jobs AS w ON w.job_id = o.job_id
JOIN units AS u ON u.job_class = o.job_class AND u.unit = o.unit
LEFT JOIN described AS d ON d.job_class = o.job_class
LEFT JOIN described AS p ON p.job_class = o.partner_class
WHERE o.throughput BETWEEN 1e-9 AND 1e9 AND isfinite(o.throughput) AND o.gpus > 0
ORDER BY o.job_class, o.gpu_type, o.gpus, o.partner_class, o.window_end, o.observation_id
