-- Energy by user. One row for each owner of jobs that ran in the last hours, the largest first.
-- parameter hours DOUBLE 24
SELECT
    coalesce(nullif(j.owner, ''), '(nobody)') AS owner,
    count(DISTINCT m.job_id) AS jobs,
    round(sum(m.seconds) / 3600, 3) AS gpu_hours,
    round(sum(m.energy_j) / 3.6e6, 4) AS energy_kwh
FROM job_minutes AS m
LEFT JOIN jobs AS j USING (job_id)
WHERE m."minute" >= (SELECT ts FROM newest_sample) - to_seconds($hours * 3600)
GROUP BY ALL
ORDER BY energy_kwh DESC, owner;
