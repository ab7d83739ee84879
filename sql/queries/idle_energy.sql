-- Idle energy wasted. One row for each server: energy of its GPUs while no job was on them.
-- parameter hours DOUBLE 24
WITH used AS (
    SELECT server_id, gpu_index, "minute", sum(energy_j) AS energy_j
    FROM job_minutes
    GROUP BY ALL
)
SELECT
    m.server_id,
    any_value(m.gpu_type) AS gpu_type,
    round(sum(m.energy_j) / 3.6e6, 4) AS energy_kwh,
    round(sum(m.energy_j - coalesce(u.energy_j, 0)) / 3.6e6, 4) AS idle_kwh,
    round(sum(m.energy_j - coalesce(u.energy_j, 0)) / nullif(sum(m.energy_j), 0), 3) AS idle_share
FROM gpu_minutes AS m
LEFT JOIN used AS u USING (server_id, gpu_index, "minute")
WHERE m."minute" >= (SELECT ts FROM newest_sample) - to_seconds($hours * 3600)
GROUP BY m.server_id
ORDER BY idle_kwh DESC, m.server_id;
