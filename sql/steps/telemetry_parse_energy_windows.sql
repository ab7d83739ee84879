-- Over registered rows. Cells of energy windows as values; the power limit is the number a Zeus window's name ends in.
WITH cells AS (
    SELECT
        *,
        gogh_number(start_s) AS t,
        gogh_number(elapsed_s) AS d,
        gogh_whole(gogh_number(gpu_index)) AS i,
        gogh_number(energy_j) AS e
    FROM raw_rows
),
judged AS (
    SELECT
        *,
        nullif(concat_ws('; ',
            error,
            gogh_wrong('start_s', start_s, t),
            gogh_wrong('elapsed_s', elapsed_s, d),
            gogh_wrong('gpu_index', gpu_index, i),
            gogh_wrong('energy_j', energy_j, e)
        ), '') AS parse_error
    FROM cells
)
SELECT
    line,
    part,
    gogh_text(window_name) AS window_name,
    t AS start_s,
    d AS elapsed_s,
    i AS gpu_index,
    gogh_text(gpu_type) AS gpu_type,
    gogh_text(label) AS label,
    TRY_CAST(nullif(regexp_extract(CAST(window_name AS VARCHAR), '_([0-9]+)$', 1), '') AS DOUBLE) AS power_limit_w,
    e AS energy_j,
    CASE WHEN d > 0 THEN e / d END AS power_w,
    parse_error,
    CASE WHEN parse_error IS NOT NULL THEN coalesce(raw, CAST(to_json({
        'window_name': window_name, 'start_s': start_s, 'elapsed_s': elapsed_s, 'gpu_index': gpu_index,
        'gpu_type': gpu_type, 'label': label, 'energy_j': energy_j
    }) AS VARCHAR)) END AS raw
FROM judged
ORDER BY part, line, gpu_index
