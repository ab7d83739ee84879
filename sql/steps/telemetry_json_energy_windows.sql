-- Over registered rows. JSON lines of energy windows as cells of text (used when a row of the quarantine is readmitted).
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
    j->>'$.window_name' AS window_name,
    j->>'$.start_s' AS start_s,
    j->>'$.elapsed_s' AS elapsed_s,
    j->>'$.gpu_index' AS gpu_index,
    j->>'$.gpu_type' AS gpu_type,
    j->>'$.label' AS label,
    j->>'$.energy_j' AS energy_j
FROM lines
