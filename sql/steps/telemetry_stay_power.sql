-- Mean power (a sample speaks for the time before it) of the registered `pieces` (key, server_id, gpu_index, ts_from, ts_to), summed by key.
WITH samples AS (
    SELECT server_id, gpu_index, ts, power_w
    FROM gpu_samples_all
    WHERE ts BETWEEN to_timestamp($since) AND to_timestamp($until) AND power_w IS NOT NULL
),
by_piece AS (
    SELECT p.key, p.server_id, p.gpu_index, p.ts_from, p.ts_to, avg(s.power_w) AS power_w, count(*) AS n
    FROM pieces AS p
    JOIN samples AS s
        ON s.server_id = p.server_id AND s.gpu_index = p.gpu_index
        AND s.ts > to_timestamp(p.ts_from) AND s.ts <= to_timestamp(p.ts_to)
    GROUP BY ALL
)
SELECT
    key,
    sum(power_w * (ts_to - ts_from)) AS energy_j,
    count(DISTINCT (server_id, gpu_index)) AS gpus,
    sum(n) AS samples
FROM by_piece
GROUP BY key
