-- Clean events of the registered batch into their table, with what has to be computed again.
INSERT INTO job_events
SELECT c.job_id, c.ts, c.event, c.server_id, c.gpus, c.partner_job_id, c.detail, p.batch_id
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id
JOIN parts AS p ON p.part = c.part
ORDER BY c.ts, c.row_id;
INSERT OR IGNORE INTO touched
SELECT DISTINCT 'job_events', c.job_id, gogh_window(c.ts, $window_s)
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id;
