-- GPU type of each server, and the limits its GPUs have now.
SELECT s.server_id, s.gpu_type, max(g.power_limit_w) AS power_limit_w
FROM servers AS s
LEFT JOIN gpus AS g ON g.server_id = s.server_id
GROUP BY s.server_id, s.gpu_type
