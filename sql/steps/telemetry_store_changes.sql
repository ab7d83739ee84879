-- Events that follow from the state (registered as `changes`), unless they are in the log already.
DROP TABLE IF EXISTS temp.fresh;
CREATE TEMP TABLE fresh AS
SELECT c.*
FROM changes AS c
ANTI JOIN job_events AS e
    ON e.job_id = c.job_id AND e.ts = c.ts AND e.event = c.event AND e.server_id IS NOT DISTINCT FROM c.server_id
        AND e.gpus IS NOT DISTINCT FROM c.gpus
WHERE EXISTS (FROM jobs AS j WHERE j.job_id = c.job_id)
    AND NOT (c.event = 'submitted' AND EXISTS (
        FROM job_events AS e WHERE e.job_id = c.job_id AND e.event = 'submitted'
    ));
-- At one moment a job leaves its old place before it is at the new one.
INSERT INTO job_events BY NAME
SELECT *, 'records' AS batch_id FROM temp.fresh ORDER BY ts, event = 'started';
INSERT OR IGNORE INTO touched
SELECT DISTINCT 'job_events', job_id, gogh_window(ts, $window_s) FROM temp.fresh;
