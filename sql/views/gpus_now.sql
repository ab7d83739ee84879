-- One row for each GPU: its server's state, its newest sample and who is on it.
CREATE OR REPLACE VIEW gpus_now AS
WITH newest AS (
    SELECT
        server_id,
        gpu_index,
        max(ts) AS ts,
        arg_max(power_w, ts) AS power_w,
        arg_max(utilisation, ts) AS utilisation,
        arg_max(temperature_c, ts) AS temperature_c
    FROM gpu_samples
    GROUP BY server_id, gpu_index
),
slots AS (
    SELECT job_id, unnest(from_json(slots, '[{"server": "VARCHAR", "gpus": ["INTEGER"]}]')) AS slot
    FROM jobs
    WHERE state IN ('running', 'moving')
),
there AS (
    SELECT job_id, slot.server AS server_id, unnest(slot.gpus) AS gpu_index FROM slots
),
holders AS (
    SELECT server_id, gpu_index, list(job_id ORDER BY job_id) AS jobs
    FROM there
    GROUP BY server_id, gpu_index
)
SELECT
    g.server_id,
    g.gpu_index,
    g.gpu_type,
    s.power AS server_state,
    coalesce(h.jobs, []) AS jobs,
    n.power_w,
    n.utilisation,
    n.temperature_c,
    n.ts AS sampled_at
FROM gpus AS g
LEFT JOIN servers AS s USING (server_id)
LEFT JOIN newest AS n USING (server_id, gpu_index)
LEFT JOIN holders AS h USING (server_id, gpu_index);
