-- One row for each job with a promise and window that was observed: promised, reached, and whether
-- it was kept (within 1 %, what the measurement itself can tell).
CREATE OR REPLACE VIEW slo_windows AS
WITH reached AS (
    SELECT
        job_id,
        any_value(owner) AS owner,
        any_value(kind) AS kind,
        window_start,
        any_value(required_throughput) AS required_throughput,
        CASE
            WHEN any_value(mode) = 'spread' THEN sum(throughput)
            ELSE sum(throughput * seconds) / nullif(sum(seconds), 0)
        END AS throughput,
        max(seconds) AS seconds
    FROM stg_observations
    WHERE required_throughput > 0
    GROUP BY job_id, window_start
)
SELECT *, throughput >= 0.99 * required_throughput AS kept FROM reached WHERE throughput IS NOT NULL;
