-- Over registered rows. Cells of job events as values; `parse_error` says what could not be read, `raw` keeps such a row.
WITH cells AS (
    SELECT
        *,
        gogh_time(ts) AS t,
        CASE WHEN gogh_absent(gpus) THEN NULL
            WHEN starts_with(trim(CAST(gpus AS VARCHAR)), '[') THEN TRY_CAST(CAST(gpus AS VARCHAR) AS INTEGER[])
            ELSE TRY_CAST('[' || replace(CAST(gpus AS VARCHAR), ';', ',') || ']' AS INTEGER[])
        END AS g
    FROM raw_rows
),
judged AS (
    SELECT
        *,
        nullif(concat_ws('; ', error, gogh_wrong_time(ts, t), gogh_wrong('gpus', gpus, g)), '') AS parse_error
    FROM cells
)
SELECT
    line,
    part,
    gogh_text(job_id) AS job_id,
    t AS ts,
    gogh_text(event) AS event,
    gogh_text(server_id) AS server_id,
    g AS gpus,
    gogh_text(partner_job_id) AS partner_job_id,
    gogh_text(detail) AS detail,
    parse_error,
    CASE WHEN parse_error IS NOT NULL THEN coalesce(raw, CAST(to_json({
        'job_id': job_id, 'ts': ts, 'event': event, 'server_id': server_id, 'gpus': gpus,
        'partner_job_id': partner_job_id, 'detail': detail
    }) AS VARCHAR)) END AS raw
FROM judged
ORDER BY part, line
