-- Over registered rows. Cells of GPU samples as values; `parse_error` says what could not be read, `raw` keeps such a row.
WITH cells AS (
    SELECT
        *,
        gogh_time(ts) AS t,
        gogh_number(gpu_index) AS i0,
        gogh_number(power_w) AS p,
        gogh_number(energy_j) AS e,
        coalesce(gogh_number(utilisation), gogh_number(utilisation_percent) / 100) AS u,
        gogh_number(memory_used_mb) AS m,
        gogh_number(temperature_c) AS c,
        gogh_number(sm_clock_mhz) AS s,
        gogh_mask(throttle_reasons) AS r,
        gogh_number(processes) AS n0
    FROM raw_rows
),
whole AS (SELECT *, gogh_whole(i0) AS i, gogh_whole(n0) AS n FROM cells),
judged AS (
    SELECT
        *,
        -- Most rows have nothing wrong: for them the texts are not even made.
        CASE WHEN error IS NOT NULL
            OR t IS NULL
            OR (i IS NULL AND gpu_index IS NOT NULL)
            OR (p IS NULL AND power_w IS NOT NULL)
            OR (e IS NULL AND energy_j IS NOT NULL)
            OR (u IS NULL AND (utilisation IS NOT NULL OR utilisation_percent IS NOT NULL))
            OR (m IS NULL AND memory_used_mb IS NOT NULL)
            OR (c IS NULL AND temperature_c IS NOT NULL)
            OR (s IS NULL AND sm_clock_mhz IS NOT NULL)
            OR (r IS NULL AND throttle_reasons IS NOT NULL)
            OR (n IS NULL AND processes IS NOT NULL)
        THEN nullif(concat_ws('; ',
            error,
            gogh_wrong_time(ts, t),
            gogh_wrong('gpu_index', gpu_index, i),
            gogh_wrong('power_w', power_w, p),
            gogh_wrong('energy_j', energy_j, e),
            gogh_wrong('utilisation', coalesce(CAST(utilisation AS VARCHAR), CAST(utilisation_percent AS VARCHAR)), u),
            gogh_wrong('memory_used_mb', memory_used_mb, m),
            gogh_wrong('temperature_c', temperature_c, c),
            gogh_wrong('sm_clock_mhz', sm_clock_mhz, s),
            gogh_wrong('throttle_reasons', throttle_reasons, r),
            gogh_wrong('processes', processes, n)
        ), '') END AS parse_error
    FROM whole
)
SELECT
    line,
    part,
    t AS ts,
    coalesce(gogh_text(server_id), default_name) AS server_id,
    i AS gpu_index,
    gogh_text(gpu_type) AS gpu_type,
    p AS power_w,
    e AS energy_j,
    u AS utilisation,
    m AS memory_used_mb,
    c AS temperature_c,
    s AS sm_clock_mhz,
    r AS throttle_reasons,
    n AS processes,
    parse_error,
    CASE WHEN parse_error IS NOT NULL THEN coalesce(raw, CAST(to_json({
        'ts': ts, 'server_id': server_id, 'gpu_index': gpu_index, 'gpu_type': gpu_type, 'power_w': power_w,
        'energy_j': energy_j, 'utilisation': utilisation, 'utilisation_percent': utilisation_percent,
        'memory_used_mb': memory_used_mb, 'temperature_c': temperature_c, 'sm_clock_mhz': sm_clock_mhz,
        'throttle_reasons': throttle_reasons, 'processes': processes
    }) AS VARCHAR)) END AS raw
FROM judged
ORDER BY part, line
