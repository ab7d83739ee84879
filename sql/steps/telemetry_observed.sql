-- Observations of the registered `redone` (job_id, window_start) make way for the clean ones.
DELETE FROM observations
WHERE (job_id, window_start) IN (SELECT (job_id, to_timestamp(window_start)) FROM redone);
INSERT INTO observations BY NAME
SELECT
    c.* EXCLUDE (
        row_id, part, line, parse_error, raw, is_copy, type_known, power_allowed_w, seconds, spread_share, peak_throughput,
        speed_change
    )
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id;
DELETE FROM touched;
