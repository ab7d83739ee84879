-- One row for each of the newest windows and network: the median relative error of what was
-- estimated before the window against what was measured in it.
WITH compared AS (
    SELECT o.window_start, e.network, abs(e.mean - o.throughput) / o.throughput AS error
    FROM observations AS o
    JOIN estimates AS e
      ON e.job_class = o.job_class AND e.gpu_type = o.gpu_type AND e.gpus = o.gpus
     AND e.partner_class IS NOT DISTINCT FROM o.partner_class
     AND e.estimated_at <= o.window_start
    WHERE o.throughput > 0
    QUALIFY row_number() OVER (PARTITION BY o.observation_id ORDER BY e.estimated_at DESC) = 1
)
SELECT window_start, network, median(error) AS error, count(*) AS cells
FROM compared
GROUP BY window_start, network
QUALIFY dense_rank() OVER (ORDER BY window_start DESC) <= $rows
ORDER BY window_start, network;
