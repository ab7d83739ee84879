-- Clean GPU records of the registered batch in the place of older ones.
INSERT INTO gpus BY NAME
SELECT c.server_id, c.gpu_index, c.gpu_type, c.power_limit_w, $now AS seen_at
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id
ON CONFLICT DO UPDATE SET
    gpu_type = excluded.gpu_type, power_limit_w = excluded.power_limit_w, seen_at = excluded.seen_at;
