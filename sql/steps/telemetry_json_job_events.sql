-- Over registered rows. JSON lines of job events as cells of text.
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
    coalesce(j->>'$.job_id', j->>'$.job') AS job_id,
    coalesce(j->>'$.ts', j->>'$.timestamp', j->>'$.time') AS ts,
    coalesce(j->>'$.event', j->>'$.kind') AS event,
    coalesce(j->>'$.server_id', j->>'$.server', j->>'$.node') AS server_id,
    coalesce(j->>'$.gpus', j->>'$.gpu_indices') AS gpus,
    coalesce(j->>'$.partner_job_id', j->>'$.partner', j->>'$.with') AS partner_job_id,
    j->>'$.detail' AS detail
FROM lines
