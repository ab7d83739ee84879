-- Energy and promises of the last windows. One row for each window, the newest first.
-- parameter windows BIGINT 24
SELECT
    window_start, over, measured_s, round(planned_w, 1) AS planned_w, round(measured_w, 1) AS measured_w,
    round(energy_kwh, 4) AS energy_kwh, round(covered, 4) AS covered, round(kept, 4) AS kept, running, waiting
FROM windows
ORDER BY window_start DESC
LIMIT $windows;
