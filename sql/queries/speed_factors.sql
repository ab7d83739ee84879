-- Speed factor of each GPU. One row for each GPU, the slowest first; 1 is the median of its type.
-- parameter at_least BIGINT 1
SELECT server_id, gpu_index, gpu_type, round(speed_factor, 4) AS speed_factor, observations,
    round(spread, 4) AS spread
FROM gpu_speed_factors
WHERE observations >= $at_least
ORDER BY speed_factor, server_id, gpu_index;
