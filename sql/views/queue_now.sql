-- One row for each waiting job, with the reason that the running plan gives; a job that was stopped
-- waits since then.
CREATE OR REPLACE VIEW queue_now AS
SELECT
    j.job_id,
    j.owner,
    j.job_class,
    j.priority,
    j.required_throughput,
    j.unit,
    j.submitted_at,
    epoch(j.seen_at) - epoch(coalesce(j.since, j.submitted_at)) AS waited_s,
    coalesce(w.reason, 'not planned yet') AS reason
FROM jobs AS j
LEFT JOIN (SELECT * FROM waiting SEMI JOIN running_plan USING (plan_id)) AS w USING (job_id)
WHERE j.state = 'waiting';
