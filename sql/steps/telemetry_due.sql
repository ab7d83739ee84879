-- Windows to be measured, into temp.due: those in which rows came and the ones before them (a sample
-- speaks for the time before it), this one and the last. A window that began before anything was known
-- of the servers is not measured. Gives the time from the first to the last.
DROP TABLE IF EXISTS temp.due;
CREATE TEMP TABLE due AS
WITH listed AS (
    SELECT window_start FROM touched
    UNION
    SELECT gogh_window($now::TIMESTAMPTZ, $window_s)
),
asked AS (
    SELECT window_start FROM listed
    UNION
    SELECT gogh_window(window_start - INTERVAL 1 SECOND, $window_s) FROM listed
),
spans AS (
    SELECT
        window_start,
        least(window_start + to_seconds($window_s), date_trunc('day', window_start) + INTERVAL 1 DAY) AS window_end
    FROM asked
)
SELECT window_start, window_end, least(window_end, $now) AS until
FROM spans
WHERE window_start < $now AND window_start >= (SELECT min(since) FROM server_states);
SELECT min(window_start) AS since, max(until) AS until FROM temp.due;
