-- Progress of the registered jobs (`wanted_jobs`) between two moments.
SELECT p.job_id, p."rank", epoch(p.ts) AS ts, p.steps, p.attempt, coalesce(p.event = 'checkpoint', false) AS checkpoint
FROM job_progress_all AS p
SEMI JOIN wanted_jobs AS w ON w.job_id = p.job_id
WHERE p.ts BETWEEN to_timestamp($since) AND to_timestamp($until)
ORDER BY p.job_id, p."rank", p.ts, p.steps
