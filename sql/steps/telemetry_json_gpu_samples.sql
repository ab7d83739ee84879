-- Over registered rows. JSON lines of GPU samples as cells of text.
WITH lines AS (
    SELECT line, part, default_name, error, raw, CASE WHEN error IS NULL AND json_valid(raw) AND json_type(raw) = 'OBJECT' THEN raw END AS j
    FROM raw_lines
)
SELECT
    line,
    part,
    default_name,
    CASE WHEN j IS NULL THEN coalesce(error, 'line is no JSON object') END AS error,
    CASE WHEN j IS NULL THEN raw END AS raw,
    coalesce(j->>'$.ts', j->>'$.timestamp', j->>'$.time') AS ts,
    coalesce(j->>'$.server_id', j->>'$.server', j->>'$.host') AS server_id,
    coalesce(j->>'$.gpu_index', j->>'$.gpu', j->>'$.index') AS gpu_index,
    coalesce(j->>'$.gpu_type', j->>'$.name') AS gpu_type,
    coalesce(j->>'$.power_w', j->>'$.power') AS power_w,
    coalesce(j->>'$.energy_j', j->>'$.energy') AS energy_j,
    j->>'$.utilisation' AS utilisation,
    j->>'$.utilisation_percent' AS utilisation_percent,
    j->>'$.memory_used_mb' AS memory_used_mb,
    j->>'$.temperature_c' AS temperature_c,
    j->>'$.sm_clock_mhz' AS sm_clock_mhz,
    j->>'$.throttle_reasons' AS throttle_reasons,
    j->>'$.processes' AS processes
FROM lines
