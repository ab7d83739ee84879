-- Error of the estimates over time. One row for each hour and network (measured, P2, P1).
-- parameter hours DOUBLE 168
SELECT
    date_trunc('hour', window_start) AS "hour",
    network,
    count(*) AS observations,
    round(median(relative_error), 4) AS median_error,
    round(quantile_cont(relative_error, 0.9), 4) AS p90_error,
    round(avg(inside::INTEGER), 3) AS inside_interval
FROM estimate_errors
WHERE window_start >= (SELECT max(window_start) FROM estimate_errors) - to_seconds($hours * 3600)
GROUP BY ALL
ORDER BY "hour", network;
