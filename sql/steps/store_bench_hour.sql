-- For the benchmark: samples of every GPU for a stretch of seconds, eight GPUs to a server.
INSERT INTO gpu_samples
SELECT
    $start::TIMESTAMPTZ + to_seconds(second) AS ts,
    's' || (gpu // 8) AS server_id,
    (gpu % 8)::INTEGER AS gpu_index,
    ['v100', 'a100', 't4', 'p100'][1 + (gpu // 8) % 4] AS gpu_type,
    round(60 + hash(second * 7919 + gpu) % 2000 / 10.0, 1) AS power_w,
    round(second * 120.0 + gpu, 1) AS energy_j,
    round(hash(second * 31 + gpu) % 101 / 100.0, 2) AS utilisation,
    8000.0 + gpu AS memory_used_mb,
    40.0 + second % 30 AS temperature_c,
    1380.0 AS sm_clock_mhz,
    0 AS throttle_reasons,
    1 AS processes,
    'bench' AS batch_id
FROM range($seconds::BIGINT) AS s (second), range($gpus::BIGINT) AS g (gpu);
