-- One row for each GPU and minute with samples: mean power and utilisation, the seconds the samples
-- speak for, and the energy of those seconds.
CREATE OR REPLACE VIEW gpu_minutes AS
SELECT
    s.server_id,
    s.gpu_index,
    coalesce(s.gpu_type, gpus.gpu_type, 'unknown') AS gpu_type,
    s.began_at AS "minute",
    s.samples,
    s.power_w,
    s.utilisation,
    epoch(s.to_ts) - epoch(s.from_ts) AS seconds,
    s.power_w * seconds AS energy_j
FROM gpu_spans(60, TIMESTAMPTZ '-infinity', TIMESTAMPTZ 'infinity') AS s
LEFT JOIN gpus USING (server_id, gpu_index);
