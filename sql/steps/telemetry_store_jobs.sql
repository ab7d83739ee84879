-- Clean job records of the registered batch in the place of older ones; a promise that changed is kept with the time from
-- which it held: the first since the job was submitted, others since they were seen ($at).
INSERT OR REPLACE INTO job_promises
WITH last AS (
    SELECT job_id, arg_max(required_throughput, since) AS required_throughput
    FROM job_promises SEMI JOIN checked USING (job_id)
    GROUP BY job_id
)
SELECT c.job_id, if(l.job_id IS NULL, c.submitted_at, $at), c.required_throughput
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id
LEFT JOIN last AS l ON l.job_id = c.job_id
WHERE l.job_id IS NULL
    OR (c.state IN ('waiting', 'running', 'moving') AND c.required_throughput <> l.required_throughput);
INSERT OR REPLACE INTO jobs BY NAME
SELECT
    c.* EXCLUDE (row_id, part, line, parse_error, raw, is_copy, slots_known, overfull, place_missing, submitted_ahead_s),
    $now AS seen_at
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id;
