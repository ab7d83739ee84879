-- One row for each stay of a job at one place (GPUs of one server), from start to stop.
-- A gang leaves all its places at once; a spread job leaves each on its own.
CREATE OR REPLACE VIEW stg_job_stays AS
WITH events AS (
    SELECT e.*, coalesce(j.mode, 'gang') = 'spread' AS spread
    FROM job_events AS e
    LEFT JOIN jobs AS j USING (job_id)
),
begins AS (
    SELECT job_id, ts AS began_at, server_id, gpus, partner_job_id, spread
    FROM events
    WHERE event IN ('started', 'moved') AND server_id IS NOT NULL AND len(gpus) > 0
),
final AS (
    SELECT
        b.job_id,
        b.server_id,
        b.gpus,
        b.began_at,
        any_value(b.partner_job_id) AS partner_job_id,
        min(e.ts) AS ended_at
    FROM begins AS b
    LEFT JOIN events AS e
        ON
            e.job_id = b.job_id
            AND e.ts > b.began_at
            AND (
                e.event IN ('finished', 'failed', 'cancelled')
                OR (
                    e.event IN ('stopped', 'started', 'moved')
                    AND (NOT b.spread OR (e.server_id = b.server_id AND e.gpus = b.gpus))
                )
            )
    GROUP BY b.job_id, b.server_id, b.gpus, b.began_at
)
SELECT * FROM final;
