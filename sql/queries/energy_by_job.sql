-- Energy by job. One row for each job that ran in the last hours, the largest first.
-- parameter hours DOUBLE 24
SELECT
    m.job_id,
    any_value(j.owner) AS owner,
    any_value(j.job_class) AS job_class,
    string_agg(DISTINCT m.gpu_type, ', ' ORDER BY m.gpu_type) AS gpu_types,
    round(sum(m.seconds) / 3600, 3) AS gpu_hours,
    round(sum(m.energy_j) / 3.6e6, 4) AS energy_kwh,
    round(sum(m.energy_j) / nullif(any_value(j.steps_done), 0), 3) AS joules_per_step
FROM job_minutes AS m
LEFT JOIN jobs AS j USING (job_id)
WHERE m."minute" >= (SELECT ts FROM newest_sample) - to_seconds($hours * 3600)
GROUP BY m.job_id
ORDER BY energy_kwh DESC, m.job_id;
