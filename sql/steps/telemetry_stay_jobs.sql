-- What observations say of jobs and servers.
SELECT job_id, job_class, unit, mode = 'spread' AS spread FROM jobs
