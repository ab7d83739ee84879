-- Helper columns of GPU records: one row for each row of the registered `batch`.
SELECT
    b.*,
    t.gpu_type IS NOT NULL AS type_known,
    t.max_w * 1.15 AS power_allowed_w,
    false AS is_copy
FROM batch AS b
LEFT JOIN gpu_types AS t ON t.gpu_type = b.gpu_type
