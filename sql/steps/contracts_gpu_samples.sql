-- Helper columns of GPU samples: one row for each row of the registered `batch`.
-- `facts` (now, period_s) and `gpu_types` (memory_mb, idle_w, max_w) are registered too.
WITH known AS (
    SELECT
        b.* REPLACE (coalesce(b.gpu_type, g.gpu_type, s.gpu_type) AS gpu_type),
        s.server_id IS NOT NULL OR NOT EXISTS (FROM servers) AS server_known,
        s.server_id IS NULL OR b.gpu_index BETWEEN 0 AND s.gpus - 1 AS gpu_known,
        coalesce(g.gpu_type, s.gpu_type) AS declared_type
    FROM batch AS b
    LEFT JOIN servers AS s ON s.server_id = b.server_id
    LEFT JOIN gpus AS g ON g.server_id = b.server_id AND g.gpu_index = b.gpu_index
),
typed AS (
    SELECT
        k.*,
        k.gpu_type IS NULL OR t.gpu_type IS NOT NULL OR k.gpu_type = k.declared_type AS type_known,
        k.gpu_type IS NULL OR k.declared_type IS NULL OR k.gpu_type = k.declared_type AS type_agrees,
        -- Short peaks go over the limit by some percent.
        t.max_w * 1.15 AS power_allowed_w,
        t.memory_mb * 1.10 AS memory_allowed_mb
    FROM known AS k
    LEFT JOIN gpu_types AS t ON t.gpu_type = k.gpu_type
),
-- The last counter before the batch, so that the first row has a previous value too.
edge AS (SELECT min(ts) AS lo FROM batch),
before AS (
    SELECT server_id, gpu_index, max(ts) AS ts, arg_max(energy_j, ts) AS energy_j
    FROM gpu_samples, edge
    WHERE ts >= lo - INTERVAL 10 MINUTE AND ts < lo AND energy_j IS NOT NULL
    GROUP BY server_id, gpu_index
),
ordered AS (
    SELECT
        t.*,
        lag(ts) OVER w AS previous_ts,
        lag(power_w) OVER w AS previous_power_w,
        lag(hash(power_w, energy_j, utilisation, memory_used_mb, temperature_c, sm_clock_mhz)) OVER w AS previous_hash,
        hash(power_w, energy_j, utilisation, memory_used_mb, temperature_c, sm_clock_mhz) AS own_hash,
        lag(energy_j) OVER w AS lag_energy_j,
        lag(energy_j, 2) OVER w AS lag2_energy_j,
        lead(energy_j) OVER w AS lead_energy_j
    FROM typed AS t
    WINDOW w AS (PARTITION BY server_id, gpu_index ORDER BY ts, row_id)
),
-- A counter above its successor, which goes on from its predecessor, is itself wrong.
spiked AS (
    SELECT *, coalesce(energy_j > lead_energy_j AND lead_energy_j >= lag_energy_j, false) AS spike
    FROM ordered
),
stepped AS (
    SELECT
        s.*,
        -- Where the row before is such a wrong one, the one before that is the previous value.
        coalesce(
            CASE
                WHEN s.lag_energy_j > s.energy_j AND s.energy_j >= s.lag2_energy_j THEN s.lag2_energy_j
                ELSE s.lag_energy_j
            END,
            b.energy_j
        ) AS previous_energy_j,
        coalesce(s.previous_ts, b.ts) AS since_ts
    FROM spiked AS s
    LEFT JOIN before AS b ON b.server_id = s.server_id AND b.gpu_index = s.gpu_index AND b.ts < s.ts
),
by_gpu AS (
    SELECT
        server_id,
        gpu_index,
        count(*) FILTER (ts IS DISTINCT FROM previous_ts) AS seconds,
        -- Some sources report every 10 s; a gap is measured by their own pace.
        median(nullif(dt, 0)) AS pace_s,
        sum(CASE WHEN pair THEN (power_w + previous_power_w) / 2 * dt END) AS integral_j,
        sum(CASE WHEN pair THEN energy_j - lag_energy_j END) AS counted_j
    FROM (
        SELECT
            *,
            epoch(ts) - epoch(previous_ts) AS dt,
            NOT spike AND energy_j >= lag_energy_j AND power_w IS NOT NULL AND previous_power_w IS NOT NULL
                AND energy_j - lag_energy_j < 100000 AND epoch(ts) - epoch(previous_ts) BETWEEN 0 AND 10 AS pair
        FROM spiked
    )
    GROUP BY server_id, gpu_index
),
by_server AS (
    SELECT
        b.server_id,
        -- Without the few rows that come late from long before.
        quantile_cont(epoch(b.ts), 0.98) - quantile_cont(epoch(b.ts), 0.02) AS span_s,
        count(DISTINCT b.gpu_index) AS gpus_seen
    FROM batch AS b
    GROUP BY b.server_id
)
SELECT
    s.*,
    coalesce(own_hash = previous_hash AND s.ts = previous_ts, false) AS is_copy,
    coalesce(own_hash <> previous_hash AND s.ts = previous_ts, false) AS key_taken,
    epoch(s.ts) - epoch(f.now) AS ahead_s,
    epoch(f.now) - epoch(s.ts) AS age_s,
    CASE WHEN s.spike THEN s.lead_energy_j - s.energy_j ELSE s.energy_j - s.previous_energy_j END AS energy_step_j,
    -- More than the GPU type can take in that time (and a second of slack).
    CASE WHEN s.energy_j >= s.previous_energy_j THEN
        s.previous_energy_j + coalesce(s.power_allowed_w, 2000) * (epoch(s.ts) - epoch(since_ts) + 2)
    END AS energy_allowed_j,
    least(1.0, g.seconds / (floor(v.span_s / greatest(f.period_s, coalesce(g.pace_s, 0))) + 1)) AS completeness,
    -- Of 60 s and more only: the integral of fewer samples says little.
    CASE WHEN g.seconds >= 60 AND g.integral_j > 1000 THEN g.counted_j / g.integral_j END AS energy_ratio,
    coalesce(servers.gpus - v.gpus_seen, 0) AS gpus_silent
FROM stepped AS s
CROSS JOIN facts AS f
LEFT JOIN by_gpu AS g ON g.server_id = s.server_id AND g.gpu_index = s.gpu_index
LEFT JOIN by_server AS v ON v.server_id = s.server_id
LEFT JOIN servers ON servers.server_id = s.server_id
