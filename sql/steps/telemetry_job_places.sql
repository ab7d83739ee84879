-- Where each job was when its record was last kept.
SELECT job_id, state, slots FROM jobs
