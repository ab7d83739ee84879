-- One row for each job, GPU and minute: the job's part of the GPU's energy by the time it was there;
-- jobs that share a GPU share its energy.
CREATE OR REPLACE VIEW job_minutes AS
WITH ended AS (
    SELECT
        job_id,
        server_id,
        unnest(gpus) AS gpu_index,
        began_at,
        coalesce(ended_at, (SELECT ts FROM newest_sample) + INTERVAL 1 MINUTE) AS ended_at
    FROM stg_job_stays
),
there AS (
    SELECT
        *,
        unnest(generate_series(date_trunc('minute', began_at), ended_at, INTERVAL 1 MINUTE)) AS "minute"
    FROM ended
    WHERE ended_at > began_at
),
seconds AS (
    SELECT
        job_id,
        server_id,
        gpu_index,
        "minute",
        sum(
            epoch(least(ended_at, "minute" + INTERVAL 1 MINUTE)) - epoch(greatest(began_at, "minute"))
        ) AS seconds
    FROM there
    GROUP BY job_id, server_id, gpu_index, "minute"
),
beside AS (
    SELECT
        s.*,
        g.gpu_type,
        g.energy_j,
        g.seconds AS sampled_s,
        sum(s.seconds) OVER (PARTITION BY server_id, gpu_index, "minute") AS all_s
    FROM seconds AS s
    JOIN gpu_minutes AS g USING (server_id, gpu_index, "minute")
    WHERE s.seconds > 0
)
SELECT
    job_id,
    server_id,
    gpu_index,
    gpu_type,
    "minute",
    seconds,
    energy_j * seconds / greatest(sampled_s, all_s) AS energy_j,
    all_s > 60 AS shared
FROM beside;
