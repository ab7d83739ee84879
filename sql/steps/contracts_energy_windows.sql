-- Helper columns of energy windows: one row for each row of the registered `batch`.
SELECT
    b.*,
    b.gpu_type IS NULL OR t.gpu_type IS NOT NULL AS type_known,
    t.max_w * 1.15 AS power_allowed_w,
    row_number() OVER (PARTITION BY b.part, b.window_name, b.start_s, b.gpu_index ORDER BY b.row_id) > 1 AS is_copy
FROM batch AS b
LEFT JOIN gpu_types AS t ON t.gpu_type = b.gpu_type
