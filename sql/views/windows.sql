-- One row for each window that was measured, or planned and handed over: planned and measured draw of
-- the whole cluster, the share of its GPUs' time that samples cover, and the share of promised
-- job-seconds, waiting included, in which a job got at least 95 % of its promise. A window that is not
-- over is measured up to now; of several plans the last counts.
CREATE OR REPLACE VIEW windows AS
WITH planned AS (
    SELECT c.window_start, p.plan_id, p.power_w AS planned_w, p.running, p.waiting, p.gap
    FROM plans AS p
    JOIN cycles AS c USING (cycle_id)
    WHERE p.emitted_at IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY c.window_start ORDER BY c.revision DESC) = 1
),
measured AS (
    SELECT
        *,
        epoch(measured_until) - epoch(window_start) AS measured_s,
        gpu_energy_j + server_energy_j AS energy_j
    FROM measured_windows
)
SELECT
    window_start,
    m.measured_until >= m.window_end AS over,
    m.measured_s,
    p.plan_id,
    p.planned_w,
    m.energy_j / m.measured_s AS measured_w,
    m.energy_j / 3.6e6 AS energy_kwh,
    m.covered,
    m.kept_s / nullif(m.promised_s - m.unknown_s, 0) AS kept,
    p.running,
    p.waiting,
    p.gap
FROM measured AS m
FULL JOIN planned AS p USING (window_start);
