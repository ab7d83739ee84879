-- Energy of the GPUs by type. One row for each GPU type with samples in the last hours.
-- parameter hours DOUBLE 24
SELECT
    gpu_type,
    count(DISTINCT (server_id, gpu_index)) AS gpus,
    round(avg(power_w), 1) AS power_w_per_gpu,
    round(avg(utilisation), 3) AS utilisation,
    round(sum(energy_j) / 3.6e6, 4) AS energy_kwh
FROM gpu_minutes
WHERE "minute" >= (SELECT ts FROM newest_sample) - to_seconds($hours * 3600)
GROUP BY gpu_type
ORDER BY energy_kwh DESC;
