-- How far the last cycle's estimates were from what was then measured: median relative error. What
-- was measured in a window that had not ended when the plan was handed over counts.
SELECT median(abs(e.mean - o.throughput) / o.throughput) AS error, count(*) AS cells
FROM observations AS o
JOIN estimates AS e
  ON e.job_class = o.job_class AND e.gpu_type = o.gpu_type AND e.gpus = o.gpus
 AND e.partner_class IS NOT DISTINCT FROM o.partner_class
WHERE e.cycle_id = $cycle_id
  AND o.window_end > $since
  AND o.throughput > 0;
