-- One row for each job and GPU type it ran on: GPU seconds and energy, its part where it shared.
CREATE OR REPLACE VIEW job_energy AS
SELECT
    m.job_id,
    any_value(j.owner) AS owner,
    any_value(j.job_class) AS job_class,
    m.gpu_type,
    sum(m.seconds) AS gpu_s,
    sum(m.energy_j) AS energy_j,
    min(m."minute") AS first_minute,
    max(m."minute") AS last_minute
FROM job_minutes AS m
LEFT JOIN jobs AS j USING (job_id)
GROUP BY m.job_id, m.gpu_type;
