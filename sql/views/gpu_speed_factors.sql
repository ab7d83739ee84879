-- One row for each GPU: how fast it is against others of its type at the same work, learned from
-- observations. 1 is the median; few observations pull towards 1 (as three at 1 would).
CREATE OR REPLACE VIEW gpu_speed_factors AS
WITH alike AS (
    SELECT
        o.*,
        median(ln(throughput)) OVER cell AS usual,
        min(server_id) OVER cell <> max(server_id) OVER cell
        OR min(gpu_indices) OVER cell <> max(gpu_indices) OVER cell AS compared
    FROM observations AS o
    WHERE throughput > 0 AND server_id IS NOT NULL
    WINDOW cell AS (PARTITION BY job_class, gpu_type, gpus, partner_class, power_limit_w)
),
ratios AS (
    SELECT server_id, unnest(gpu_indices) AS gpu_index, gpu_type, ln(throughput) - usual AS ratio
    FROM alike
    WHERE compared
)
SELECT
    server_id,
    gpu_index,
    any_value(gpu_type) AS gpu_type,
    exp(median(ratio) * count(*) / (count(*) + 3)) AS speed_factor,
    count(*) AS observations,
    mad(ratio) AS spread
FROM ratios
GROUP BY server_id, gpu_index;
