-- Cost and carbon of the GPUs' energy. One row for each day (UTC) and GPU type.
-- parameter price_per_kwh DOUBLE 0.30
-- parameter grams_co2_per_kwh DOUBLE 350
-- parameter days DOUBLE 30
SELECT
    date_trunc('day', "minute")::DATE AS "day",
    gpu_type,
    round(sum(energy_j) / 3.6e6, 4) AS energy_kwh,
    round(sum(energy_j) / 3.6e6 * $price_per_kwh, 4) AS cost,
    round(sum(energy_j) / 3.6e9 * $grams_co2_per_kwh, 4) AS co2_kg
FROM gpu_minutes
WHERE "minute" >= (SELECT ts FROM newest_sample) - to_seconds($days * 86400)
GROUP BY ALL
ORDER BY "day", gpu_type;
