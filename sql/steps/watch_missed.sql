-- One row for each running job whose promise was missed in every window since $since, with at
-- least two windows seen.
SELECT o.job_id, count(*) AS windows
FROM observations AS o
JOIN jobs AS j USING (job_id)
WHERE o.window_start >= $since AND j.state = 'running' AND j.required_throughput > 0
GROUP BY o.job_id
HAVING count(*) >= 2 AND max(o.throughput / j.required_throughput) < 0.99
ORDER BY o.job_id;
