-- One row for each running job that ran in every window since $since and never got what was promised.
SELECT w.job_id, count(*) AS windows
FROM job_windows AS w
JOIN measured_windows AS m USING (window_start)
JOIN jobs AS j USING (job_id)
WHERE m.window_end > $since AND j.state = 'running'
GROUP BY w.job_id
HAVING min(w.window_start) <= $since AND sum(w.kept_s) = 0 AND min(w.throughput) > 0
ORDER BY w.job_id;
