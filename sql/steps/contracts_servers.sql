-- Helper columns of server records: one row for each row of the registered `batch`.
SELECT
    b.*,
    t.gpu_type IS NOT NULL AS type_known,
    len(b.foreign_gpus) = 0 OR (list_min(b.foreign_gpus) >= 0 AND list_max(b.foreign_gpus) < b.gpus) AS foreign_known,
    s.gpu_type IS NULL OR s.gpu_type = b.gpu_type AS type_kept,
    false AS is_copy
FROM batch AS b
LEFT JOIN gpu_types AS t ON t.gpu_type = b.gpu_type
LEFT JOIN servers AS s ON s.server_id = b.server_id
