-- Helper columns of job records: one row for each row of the registered `batch`.
WITH slots AS (
    SELECT row_id, unnest(from_json(slots, '[{"server": "VARCHAR", "gpus": ["INTEGER"]}]'), recursive := true)
    FROM batch
    WHERE state IN ('running', 'moving')
),
places AS (
    SELECT l.row_id, l.server, unnest(l.gpus) AS gpu FROM slots AS l
),
crowded AS (
    SELECT server, gpu FROM places GROUP BY server, gpu HAVING count(DISTINCT row_id) > 2
),
judged AS (
    SELECT
        p.row_id,
        bool_and(s.server_id IS NOT NULL AND p.gpu BETWEEN 0 AND s.gpus - 1) AS known,
        bool_or(c.server IS NOT NULL) AS overfull
    FROM places AS p
    LEFT JOIN servers AS s ON s.server_id = p.server
    LEFT JOIN crowded AS c ON c.server = p.server AND c.gpu = p.gpu
    GROUP BY p.row_id
)
SELECT
    b.*,
    coalesce(j.known, true) AS slots_known,
    coalesce(j.overfull, false) AS overfull,
    b.state = 'running' AND j.row_id IS NULL AS place_missing,
    epoch(b.submitted_at) - epoch(f.now) AS submitted_ahead_s,
    false AS is_copy
FROM batch AS b
CROSS JOIN facts AS f
LEFT JOIN judged AS j ON j.row_id = b.row_id
