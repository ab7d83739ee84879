-- Clean samples of the registered batch into their table, with what has to be computed again.
INSERT INTO gpu_samples
SELECT
    c.ts, c.server_id, c.gpu_index, c.gpu_type, c.power_w, c.energy_j, c.utilisation, c.memory_used_mb,
    c.temperature_c, c.sm_clock_mhz, c.throttle_reasons, c.processes, p.batch_id
FROM checked AS c
JOIN temp.split AS s ON s.row_id = c.row_id
JOIN parts AS p ON p.part = s.part
WHERE s.fate = 'clean'
ORDER BY c.ts, c.row_id;
INSERT OR IGNORE INTO touched
SELECT DISTINCT 'gpu_samples', c.server_id, gogh_window(c.ts, $window_s)
FROM checked AS c
JOIN temp.split AS s ON s.row_id = c.row_id
WHERE s.fate = 'clean';
INSERT INTO high_water
SELECT 'gpu_samples', c.server_id, max(c.ts)
FROM checked AS c
JOIN temp.split AS s ON s.row_id = c.row_id
WHERE s.fate = 'clean'
GROUP BY c.server_id
ON CONFLICT DO UPDATE SET ts = greatest(ts, excluded.ts);
