-- Helper columns of observations: one row for each row of the registered `batch`.
SELECT
    b.*,
    t.gpu_type IS NOT NULL OR EXISTS (FROM servers AS s WHERE s.gpu_type = b.gpu_type) AS type_known,
    t.max_w * 1.15 * b.gpus AS power_allowed_w,
    epoch(b.window_end) - epoch(b.window_start) AS seconds,
    b.throughput_spread / b.throughput AS spread_share,
    false AS is_copy
FROM batch AS b
LEFT JOIN gpu_types AS t ON t.gpu_type = b.gpu_type
