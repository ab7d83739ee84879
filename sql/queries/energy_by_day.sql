-- Energy of the GPUs by day. One row for each day (UTC) of the last days.
-- parameter days DOUBLE 30
SELECT
    date_trunc('day', "minute")::DATE AS "day",
    count(DISTINCT (server_id, gpu_index)) AS gpus,
    round(sum(energy_j) / 3.6e6, 4) AS energy_kwh,
    round(avg(utilisation), 3) AS utilisation
FROM gpu_minutes
WHERE "minute" >= (SELECT ts FROM newest_sample) - to_seconds($days * 86400)
GROUP BY "day"
ORDER BY "day";
