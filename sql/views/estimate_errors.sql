-- One row for each observation that had been estimated: the newest estimate before its window ended,
-- and the relative error of its mean.
CREATE OR REPLACE VIEW estimate_errors AS
WITH estimated AS (
    SELECT *, coalesce(partner_class, '') AS partner FROM stg_estimates
),
observed AS (
    SELECT *, coalesce(partner_class, '') AS partner FROM stg_observations WHERE throughput > 0
)
SELECT
    o.observation_id,
    o.job_id,
    o.job_class,
    o.gpu_type,
    o.gpus,
    o.partner_class,
    o.window_start,
    e.cycle_id,
    e.network,
    e.mean,
    e.low,
    e.high,
    o.throughput,
    abs(e.mean - o.throughput) / o.throughput AS relative_error,
    o.throughput BETWEEN e.low AND e.high AS inside
FROM observed AS o
ASOF JOIN estimated AS e
    ON
        o.job_class = e.job_class
        AND o.gpu_type = e.gpu_type
        AND o.gpus = e.gpus
        AND o.partner = e.partner
        AND o.window_start >= e.window_start;
