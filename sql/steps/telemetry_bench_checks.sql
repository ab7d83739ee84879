-- The checks of gpu_samples.json in plain SQL on the registered bare rows: one count for each.
CREATE TEMP TABLE bare_servers AS SELECT server_id, any_value(gpu_type) AS gpu_type, max(gpu_index) + 1 AS gpus FROM bare_samples GROUP BY server_id;
WITH steps AS (
    SELECT
        b.*,
        s.server_id IS NOT NULL AS server_known,
        b.gpu_index BETWEEN 0 AND s.gpus - 1 AS gpu_known,
        b.gpu_type = s.gpu_type AS type_agrees,
        lag(b.ts) OVER w AS previous_ts,
        lag(b.power_w) OVER w AS previous_power_w,
        lag(b.energy_j) OVER w AS previous_energy_j,
        lead(b.energy_j) OVER w AS next_energy_j
    FROM bare_samples AS b
    LEFT JOIN bare_servers AS s ON s.server_id = b.server_id
    WINDOW w AS (PARTITION BY b.server_id, b.gpu_index ORDER BY b.ts)
),
by_gpu AS (
    SELECT
        server_id, gpu_index,
        count(DISTINCT ts) AS seconds,
        median(epoch(ts) - epoch(previous_ts)) AS pace_s,
        epoch(max(ts)) - epoch(min(ts)) AS span_s,
        sum((power_w + previous_power_w) / 2 * (epoch(ts) - epoch(previous_ts))) AS integral_j,
        sum(energy_j - previous_energy_j) AS counted_j
    FROM steps
    GROUP BY server_id, gpu_index
)
SELECT
    count(*) FILTER (ts IS NULL) AS no_time,
    count(*) FILTER (server_id IS NULL) AS no_server,
    count(*) FILTER (gpu_index IS NULL) AS no_gpu,
    count(*) FILTER (NOT server_known) AS server_unknown,
    count(*) FILTER (NOT gpu_known) AS gpu_unknown,
    count(*) FILTER (gpu_type NOT IN ('v100', 't4', 'a100')) AS type_unknown,
    count(*) FILTER (NOT type_agrees) AS type_differs,
    count(*) FILTER (ts = previous_ts) AS key_taken,
    count(*) FILTER (ts > now()) AS future,
    count(*) FILTER (power_w NOT BETWEEN 0 AND 5000) AS power_absurd,
    count(*) FILTER (power_w > 345) AS power_over,
    count(*) FILTER (utilisation NOT BETWEEN 0 AND 1) AS utilisation_off,
    count(*) FILTER (memory_used_mb < 0) AS memory_negative,
    count(*) FILTER (memory_used_mb > 36045) AS memory_over,
    count(*) FILTER (temperature_c NOT BETWEEN -10 AND 120) AS temperature_off,
    count(*) FILTER (sm_clock_mhz NOT BETWEEN 0 AND 5000) AS clock_off,
    count(*) FILTER (energy_j < previous_energy_j OR energy_j > next_energy_j) AS energy_back,
    count(*) FILTER (energy_j > previous_energy_j + 345 * (epoch(ts) - epoch(previous_ts) + 2)) AS energy_over,
    (SELECT count(*) FROM by_gpu WHERE counted_j / integral_j NOT BETWEEN 0.8 AND 1.25) AS energy_differs,
    (SELECT count(*) FROM by_gpu WHERE seconds / (span_s / pace_s + 1) < 0.5) AS incomplete,
    max(ts) AS newest
FROM steps;
