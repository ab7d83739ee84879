-- Clean progress of the registered batch into its table, with what has to be computed again.
INSERT INTO job_progress
SELECT c.ts, c.job_id, c.steps, c.attempt, c."rank", c.event, p.batch_id
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id
JOIN parts AS p ON p.part = c.part
ORDER BY c.ts, c.job_id, c."rank";
INSERT OR IGNORE INTO touched
SELECT DISTINCT 'job_progress', c.job_id, gogh_window(c.ts, $window_s)
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id;
INSERT INTO high_water
SELECT 'job_progress', c.job_id, max(c.ts)
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id
GROUP BY c.job_id
ON CONFLICT DO UPDATE SET ts = greatest(ts, excluded.ts);
