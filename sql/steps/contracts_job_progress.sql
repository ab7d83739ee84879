-- Helper columns of job progress: one row for each row of the registered `batch`.
-- Reports by others than the job's owner (`written_by`) are no neighbours of the owner's.
WITH owned AS (
    SELECT b.*, b.written_by IS NULL OR coalesce(j.owner = b.written_by, false) AS owner_agrees
    FROM batch AS b
    LEFT JOIN jobs AS j ON j.job_id = b.job_id
),
edge AS (SELECT min(ts) AS lo FROM batch),
before AS (
    SELECT p.job_id, p."rank", max(p.ts) AS ts, arg_max(p.steps, p.ts) AS steps, arg_max(p.attempt, p.ts) AS attempt
    FROM job_progress AS p, edge
    WHERE p.ts >= lo - INTERVAL 1 HOUR AND p.ts < lo AND p.job_id IN (SELECT job_id FROM batch)
    GROUP BY p.job_id, p."rank"
),
ordered AS (
    SELECT
        b.*,
        lag(b.ts) OVER w AS lag_ts,
        lag(b.steps) OVER w AS lag_steps,
        lag(b.attempt) OVER w AS lag_attempt,
        lag(b.event) OVER w AS lag_event,
        -- What is before it in time came after it, from the same source.
        coalesce(lag(b.row_id) OVER w > b.row_id AND lag(b.part) OVER w = b.part, false) AS out_of_order,
        lead(b.steps) OVER w AS lead_steps,
        lead(b.attempt) OVER w AS lead_attempt,
        lead(b.event) OVER w AS lead_event
    FROM owned AS b
    WINDOW w AS (PARTITION BY b.job_id, b."rank", b.owner_agrees ORDER BY b.ts, b.attempt, b.row_id)
),
-- A count above its successor, which goes on from its predecessor, is itself wrong.
spiked AS (
    SELECT
        *,
        coalesce(
            steps > lead_steps AND lead_steps >= lag_steps AND lead_attempt = attempt, false
        ) AND lead_event IS DISTINCT FROM 'start' AS spike
    FROM ordered
),
stepped AS (
    SELECT
        s.*,
        coalesce(
            lag(CASE WHEN NOT spike THEN s.steps END IGNORE NULLS)
                OVER (PARTITION BY s.job_id, s."rank", s.owner_agrees ORDER BY s.ts, s.attempt, s.row_id),
            b.steps
        ) AS previous_steps,
        coalesce(s.lag_attempt, b.attempt) AS previous_attempt
    FROM spiked AS s
    LEFT JOIN before AS b ON b.job_id = s.job_id AND b."rank" = s."rank" AND b.ts < s.ts
)
SELECT
    s.*,
    EXISTS (FROM jobs AS j WHERE j.job_id = s.job_id) OR NOT EXISTS (FROM jobs) AS job_known,
    epoch(s.ts) - epoch(f.now) AS ahead_s,
    epoch(f.now) - epoch(s.ts) AS age_s,
    coalesce(s.ts = lag_ts AND s.steps = lag_steps AND s.attempt = lag_attempt
        AND s.event IS NOT DISTINCT FROM lag_event, false) AS is_copy,
    -- Going back is right after a restart: a new attempt, or a start that says so.
    CASE
        WHEN s.attempt > s.previous_attempt OR s.event = 'start' THEN 0
        WHEN s.spike THEN s.lead_steps - s.steps
        ELSE s.steps - s.previous_steps
    END AS steps_gained
FROM stepped AS s
CROSS JOIN facts AS f
