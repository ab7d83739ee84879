-- Over registered rows. JSON lines of job progress as cells of text.
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
    coalesce(j->>'$.job_id', j->>'$.job') AS job_id,
    coalesce(j->>'$.steps', j->>'$.step') AS steps,
    j->>'$.attempt' AS attempt,
    j->>'$.rank' AS "rank",
    j->>'$.event' AS event
FROM lines
