-- One row for each observation, with what the job was promised and whose it is.
CREATE OR REPLACE VIEW stg_observations AS
SELECT
    o.*,
    epoch(o.window_end) - epoch(o.window_start) AS seconds,
    j.owner,
    j.kind,
    j.mode,
    j.required_throughput
FROM observations AS o
LEFT JOIN jobs AS j USING (job_id);
