-- One row for each GPU and minute with samples: mean power and utilisation; the minute counts whole.
-- Minutes are cut by whole numbers: date_trunc on times with a zone takes five times as long.
CREATE OR REPLACE VIEW gpu_minutes AS
WITH sampled AS (
    SELECT
        server_id,
        gpu_index,
        make_timestamptz(epoch_us(ts) // 60000000 * 60000000) AS "minute",
        any_value(gpu_type) AS gpu_type,
        count(*) AS samples,
        avg(power_w) AS power_w,
        avg(utilisation) AS utilisation
    FROM stg_gpu_samples
    GROUP BY ALL
)
SELECT
    s.server_id,
    s.gpu_index,
    coalesce(s.gpu_type, gpus.gpu_type, 'unknown') AS gpu_type,
    s."minute",
    s.samples,
    s.power_w,
    s.utilisation,
    s.power_w * 60 AS energy_j
FROM sampled AS s
LEFT JOIN gpus USING (server_id, gpu_index);
