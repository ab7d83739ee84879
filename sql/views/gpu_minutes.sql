-- One row for each GPU and minute with samples: mean power and utilisation; the minute counts whole.
CREATE OR REPLACE VIEW gpu_minutes AS
SELECT
    server_id,
    gpu_index,
    any_value(gpu_type) AS gpu_type,
    date_trunc('minute', ts) AS "minute",
    count(*) AS samples,
    avg(power_w) AS power_w,
    avg(utilisation) AS utilisation,
    avg(power_w) * 60 AS energy_j
FROM stg_gpu_samples
GROUP BY server_id, gpu_index, date_trunc('minute', ts);
