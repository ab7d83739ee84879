-- One row for each move of a plan: what the job reached and drew before it and after it.
CREATE OR REPLACE VIEW move_results AS
WITH moved AS (
    SELECT m.*, p.created_at, c.window_start, c.revision
    FROM moves AS m
    JOIN plans AS p USING (plan_id)
    LEFT JOIN cycles AS c USING (cycle_id)
    WHERE m.kind = 'move'
),
before AS (
    SELECT m.plan_id, m.job_id, o.throughput, o.power_w, o.gpu_type
    FROM moved AS m
    ASOF JOIN observations AS o ON m.job_id = o.job_id AND m.created_at >= o.window_end
),
after AS (
    SELECT m.plan_id, m.job_id, o.throughput, o.power_w, o.gpu_type
    FROM moved AS m
    ASOF JOIN observations AS o ON m.job_id = o.job_id AND m.created_at <= o.window_start
)
SELECT
    m.plan_id,
    m.created_at,
    m.window_start,
    m.revision,
    m.job_id,
    m.from_slots,
    m.to_slots,
    m.reason,
    b.gpu_type AS gpu_type_before,
    a.gpu_type AS gpu_type_after,
    b.throughput AS throughput_before,
    a.throughput AS throughput_after,
    b.power_w AS power_before_w,
    a.power_w AS power_after_w,
    b.power_w / nullif(b.throughput, 0) AS joules_per_step_before,
    a.power_w / nullif(a.throughput, 0) AS joules_per_step_after
FROM moved AS m
LEFT JOIN before AS b USING (plan_id, job_id)
LEFT JOIN after AS a USING (plan_id, job_id);
