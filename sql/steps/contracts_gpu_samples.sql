-- Helper columns of GPU samples: one row for each row of the registered `batch`, whose own columns are left out
-- where they stay as they are: carrying them along made the query take 1.4 times the CPU time.
-- `facts` (now, period_s) and `gpu_types` (memory_mb, idle_w, max_w) are registered too.
-- What holds for a whole GPU is joined once.
WITH ordered AS (
    SELECT
        row_id,
        server_id,
        gpu_index,
        gpu_type,
        ts,
        power_w,
        energy_j,
        hash(power_w, energy_j, utilisation, memory_used_mb, temperature_c, sm_clock_mhz) AS own_hash,
        lag(ts) OVER w AS previous_ts,
        lag(ts, 2) OVER w AS lag2_ts,
        part,
        lag(row_id) OVER w AS previous_row,
        lag(part) OVER w AS previous_part,
        lag(power_w) OVER w AS previous_power_w,
        lag(own_hash) OVER w AS previous_hash,
        lag(energy_j) OVER w AS lag_energy_j,
        lag(energy_j, 2) OVER w AS lag2_energy_j,
        lead(energy_j) OVER w AS lead_energy_j
    FROM batch
    WINDOW w AS (PARTITION BY server_id, gpu_index ORDER BY ts, row_id)
),
stepped AS MATERIALIZED (
    SELECT
        row_id,
        server_id,
        gpu_index,
        gpu_type,
        ts,
        power_w,
        previous_power_w,
        energy_j,
        lag_energy_j,
        lead_energy_j,
        ts IS DISTINCT FROM previous_ts AS other_ts,
        -- What is before it in time came after it, from the same source.
        coalesce(previous_row > row_id AND previous_part = part, false) AS out_of_order,
        coalesce(own_hash = previous_hash AND ts = previous_ts, false) AS is_copy,
        coalesce(own_hash <> previous_hash AND ts = previous_ts, false) AS key_taken,
        epoch(ts) - epoch(previous_ts) AS dt,
        -- A counter above its successor, which goes on from its predecessor, is itself wrong.
        coalesce(energy_j > lead_energy_j AND lead_energy_j >= lag_energy_j, false) AS spike,
        -- Where the row before is such a wrong one, or one below what is around it, the one before
        -- that is the previous value.
        coalesce(lag_energy_j NOT BETWEEN lag2_energy_j AND energy_j AND energy_j >= lag2_energy_j, false) AS skips,
        CASE WHEN skips THEN lag2_energy_j ELSE lag_energy_j END AS in_batch_energy_j,
        CASE WHEN skips THEN lag2_ts ELSE previous_ts END AS in_batch_ts
    FROM ordered
),
by_gpu AS (
    SELECT
        server_id,
        gpu_index,
        CASE WHEN server_id IS NOT NULL AND gpu_index IS NOT NULL THEN count(*) FILTER (other_ts) END AS seconds,
        -- Some sources report every 10 s; a gap is measured by their own pace.
        median(nullif(dt, 0)) AS pace_s,
        sum((power_w + previous_power_w) / 2 * dt) FILTER (pair) AS integral_j,
        sum(energy_j - lag_energy_j) FILTER (pair) AS counted_j
    FROM (
        SELECT
            *,
            NOT spike AND NOT skips AND energy_j >= lag_energy_j AND power_w IS NOT NULL AND previous_power_w IS NOT NULL
                AND energy_j - lag_energy_j < 100000 AND dt BETWEEN 0 AND 10 AS pair
        FROM stepped
    )
    GROUP BY server_id, gpu_index
),
by_server AS (
    SELECT
        server_id,
        -- Without the few rows that come late from long before.
        quantile_cont(epoch(ts), [0.02, 0.98]) AS ends,
        count(DISTINCT gpu_index) AS gpus_seen
    FROM batch
    GROUP BY server_id
),
-- The last counter before the batch, so that the first row has a previous value too.
edge AS (SELECT min(ts) AS lo FROM batch),
before AS (
    SELECT server_id, gpu_index, max(ts) AS ts, arg_max(energy_j, ts) AS energy_j
    FROM gpu_samples, edge
    WHERE ts >= lo - INTERVAL 10 MINUTE AND ts < lo AND energy_j IS NOT NULL
    GROUP BY server_id, gpu_index
),
whole AS (
    SELECT
        g.server_id,
        g.gpu_index,
        coalesce(d.gpu_type, s.gpu_type) AS declared_type,
        s.server_id IS NOT NULL OR NOT EXISTS (FROM servers) AS server_known,
        s.server_id IS NULL OR g.gpu_index BETWEEN 0 AND s.gpus - 1 AS gpu_known,
        p.ts AS before_ts,
        p.energy_j AS before_energy_j,
        least(1.0, g.seconds / (floor((v.ends[2] - v.ends[1]) / greatest(f.period_s, coalesce(g.pace_s, 0))) + 1))
            AS completeness,
        -- Of 60 s and more only: the integral of fewer samples says little.
        CASE WHEN g.seconds >= 60 AND g.integral_j > 1000 THEN g.counted_j / g.integral_j END AS energy_ratio,
        coalesce(s.gpus - v.gpus_seen, 0) AS gpus_silent
    FROM by_gpu AS g
    CROSS JOIN facts AS f
    LEFT JOIN servers AS s ON s.server_id = g.server_id
    LEFT JOIN gpus AS d ON d.server_id = g.server_id AND d.gpu_index = g.gpu_index
    LEFT JOIN by_server AS v ON v.server_id = g.server_id
    LEFT JOIN before AS p ON p.server_id = g.server_id AND p.gpu_index = g.gpu_index
),
joined AS (
    SELECT
        n.*,
        coalesce(n.gpu_type, g.declared_type) AS own_type,
        g.* EXCLUDE (server_id, gpu_index),
        coalesce(n.in_batch_energy_j, CASE WHEN g.before_ts < n.ts THEN g.before_energy_j END) AS previous_energy_j,
        coalesce(n.in_batch_ts, CASE WHEN g.before_ts < n.ts THEN g.before_ts END) AS since_ts
    FROM stepped AS n
    LEFT JOIN whole AS g
        ON g.server_id IS NOT DISTINCT FROM n.server_id AND g.gpu_index IS NOT DISTINCT FROM n.gpu_index
)
SELECT
    j.row_id,
    j.own_type AS gpu_type,
    j.server_known,
    j.gpu_known,
    j.own_type IS NULL OR t.gpu_type IS NOT NULL OR j.own_type = j.declared_type AS type_known,
    j.own_type IS NULL OR j.declared_type IS NULL OR j.own_type = j.declared_type AS type_agrees,
    j.is_copy,
    j.out_of_order,
    j.key_taken,
    j.completeness,
    j.energy_ratio,
    j.gpus_silent,
    -- Short peaks go over the limit by some percent.
    t.max_w * 1.15 AS power_allowed_w,
    t.memory_mb * 1.10 AS memory_allowed_mb,
    epoch(j.ts) - epoch(f.now) AS ahead_s,
    epoch(f.now) - epoch(j.ts) AS age_s,
    CASE WHEN j.spike THEN j.lead_energy_j - j.energy_j ELSE j.energy_j - j.previous_energy_j END AS energy_step_j,
    -- More than the GPU type can take in that time (and a second of slack).
    CASE WHEN j.energy_j >= j.previous_energy_j THEN
        j.previous_energy_j + coalesce(t.max_w * 1.15, 2000) * (epoch(j.ts) - epoch(j.since_ts) + 2)
    END AS energy_allowed_j
FROM joined AS j
CROSS JOIN facts AS f
LEFT JOIN gpu_types AS t ON t.gpu_type = j.own_type
