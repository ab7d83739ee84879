-- One row for each window and job with a promise: promised and reached throughput, the seconds for
-- which it was promised, waiting included, and those of them in which it was kept.
CREATE OR REPLACE VIEW slo_windows AS
SELECT
    w.window_start,
    w.job_id,
    j.owner,
    j.kind,
    w.required_throughput,
    w.throughput,
    w.promised_s - w.unknown_s AS promised_s,
    w.kept_s
FROM job_windows AS w
LEFT JOIN jobs AS j USING (job_id);
