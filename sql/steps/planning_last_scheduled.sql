-- The newest window before this one that the schedule reached.
SELECT max(window_start) AS window_start
FROM cycles
WHERE revision = 0 AND state <> 'missed' AND window_start < $window_start;
