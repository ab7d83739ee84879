-- Figures of the registered windows (temp.due, temp.energies, temp.judged) in the place of older ones;
-- windows of another length that overlap make way. A promise is kept from 95 % on: what noise alone
-- takes away (docs/simulation.md).
DELETE FROM job_windows
WHERE window_start IN (
    SELECT m.window_start
    FROM measured_windows AS m
    JOIN temp.due AS d ON m.window_start < d.window_end AND m.window_end > d.window_start
);
DELETE FROM measured_windows AS m
USING temp.due AS d
WHERE m.window_start < d.window_end AND m.window_end > d.window_start;
INSERT INTO job_windows BY NAME
SELECT
    window_start,
    job_id,
    sum(required_throughput * seconds) / sum(seconds) AS required_throughput,
    sum(throughput * seconds) / nullif(sum(seconds) FILTER (throughput IS NOT NULL), 0) AS throughput,
    sum(seconds) AS promised_s,
    coalesce(sum(seconds) FILTER (throughput >= 0.95 * required_throughput), 0) AS kept_s,
    coalesce(sum(seconds) FILTER (throughput IS NULL), 0) AS unknown_s
FROM temp.judged
GROUP BY window_start, job_id;
INSERT INTO measured_windows BY NAME
SELECT
    d.window_start,
    d.window_end,
    d.until AS measured_until,
    e.gpu_energy_j,
    e.server_energy_j,
    e.covered,
    coalesce(sum(w.promised_s), 0) AS promised_s,
    coalesce(sum(w.kept_s), 0) AS kept_s,
    coalesce(sum(w.unknown_s), 0) AS unknown_s,
    $now AS measured_at
FROM temp.due AS d
JOIN temp.energies AS e USING (window_start)
LEFT JOIN job_windows AS w USING (window_start)
GROUP BY ALL;
