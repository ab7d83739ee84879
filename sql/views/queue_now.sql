-- One row for each waiting job, with the reason that the newest plan gives.
CREATE OR REPLACE VIEW queue_now AS
WITH newest AS (
    SELECT plan_id FROM plans ORDER BY created_at DESC, plan_id LIMIT 1
)
SELECT
    j.job_id,
    j.owner,
    j.job_class,
    j.priority,
    j.required_throughput,
    j.unit,
    j.submitted_at,
    epoch(j.seen_at) - epoch(j.submitted_at) AS waited_s,
    coalesce(w.reason, 'not planned yet') AS reason
FROM jobs AS j
LEFT JOIN (SELECT * FROM waiting JOIN newest USING (plan_id)) AS w USING (job_id)
WHERE j.state = 'waiting';
