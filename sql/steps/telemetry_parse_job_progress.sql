-- Over registered rows. Cells of job progress as values; `parse_error` says what could not be read, `raw` keeps such a row.
WITH cells AS (
    SELECT
        *,
        gogh_time(ts) AS t,
        gogh_number(steps) AS n,
        CASE WHEN gogh_absent(attempt) THEN 0 ELSE gogh_whole(gogh_number(attempt)) END AS a,
        CASE WHEN gogh_absent("rank") THEN 0 ELSE gogh_whole(gogh_number("rank")) END AS r
    FROM raw_rows
),
judged AS (
    SELECT
        *,
        nullif(concat_ws('; ',
            error,
            gogh_wrong_time(ts, t),
            gogh_wrong('steps', steps, n),
            gogh_wrong('attempt', attempt, a),
            gogh_wrong('rank', "rank", r)
        ), '') AS parse_error
    FROM cells
)
SELECT
    line,
    part,
    t AS ts,
    coalesce(gogh_text(job_id), default_name) AS job_id,
    n AS steps,
    a AS attempt,
    r AS "rank",
    gogh_text(event) AS event,
    CAST(NULL AS VARCHAR) AS written_by,
    parse_error,
    CASE WHEN parse_error IS NOT NULL THEN coalesce(raw, CAST(to_json({
        'ts': ts, 'job_id': job_id, 'steps': steps, 'attempt': attempt, 'rank': "rank", 'event': event
    }) AS VARCHAR)) END AS raw
FROM judged
ORDER BY part, line
