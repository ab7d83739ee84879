-- One row for each running job whose promise was missed in every window since $since, seen all
-- that time.
SELECT o.job_id, count(*) AS windows
FROM observations AS o
JOIN jobs AS j USING (job_id)
WHERE o.window_end > $since AND j.state = 'running' AND j.required_throughput > 0
GROUP BY o.job_id
HAVING min(o.window_start) <= $since AND max(o.throughput / j.required_throughput) < 0.99
ORDER BY o.job_id;
