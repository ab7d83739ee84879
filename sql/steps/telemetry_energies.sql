-- Energy of the registered windows (temp.due), into temp.energies: of the GPUs by their samples, of the
-- servers themselves by their power states; and the share of the time of GPUs on that samples cover.
DROP TABLE IF EXISTS temp.energies;
CREATE TEMP TABLE energies AS
WITH stretches AS (
    SELECT
        d.window_start, s.*,
        epoch(least(s.until, d.until)) - epoch(greatest(s.since, d.window_start)) AS seconds
    FROM temp.due AS d
    JOIN server_stretches AS s ON s.since < d.until AND s.until > d.window_start
),
servers_own AS (
    SELECT window_start, sum(power_w * seconds) AS energy_j FROM stretches GROUP BY window_start
),
expected AS (
    SELECT window_start, server_id, unnest(range(gpus)) AS gpu_index, foreign_gpus, seconds
    FROM stretches
    WHERE power = 'on'
),
gpus_on AS (
    SELECT window_start, server_id, gpu_index, sum(seconds) AS seconds
    FROM expected
    WHERE NOT list_contains(foreign_gpus, gpu_index)
    GROUP BY ALL
),
spans AS (
    SELECT
        d.window_start, g.server_id, g.gpu_index, g.power_w,
        epoch(least(g.to_ts, d.until)) - epoch(greatest(g.from_ts, d.window_start)) AS seconds
    FROM gpu_spans(gcd(60, $window_s), $since, $until) AS g
    JOIN temp.due AS d ON g.to_ts > d.window_start AND g.from_ts < d.until
),
gpus_sampled AS (
    SELECT window_start, server_id, gpu_index, sum(power_w * seconds) AS energy_j, sum(seconds) AS seconds
    FROM spans
    GROUP BY ALL
),
gpu_energy AS (
    SELECT window_start, sum(energy_j) AS energy_j FROM gpus_sampled GROUP BY window_start
),
coverage AS (
    SELECT window_start, sum(least(s.seconds, o.seconds)) / sum(o.seconds) AS covered
    FROM gpus_on AS o
    LEFT JOIN gpus_sampled AS s USING (window_start, server_id, gpu_index)
    GROUP BY window_start
)
SELECT
    window_start,
    coalesce(g.energy_j, 0) AS gpu_energy_j,
    coalesce(s.energy_j, 0) AS server_energy_j,
    CASE WHEN c.window_start IS NULL THEN 1 ELSE coalesce(c.covered, 0) END AS covered
FROM temp.due
LEFT JOIN gpu_energy AS g USING (window_start)
LEFT JOIN servers_own AS s USING (window_start)
LEFT JOIN coverage AS c USING (window_start);
