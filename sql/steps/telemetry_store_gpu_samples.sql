-- Clean samples of the registered batch into their table, with what has to be computed again.
INSERT INTO gpu_samples
SELECT
    c.ts, c.server_id, c.gpu_index, c.gpu_type, c.power_w, c.energy_j, c.utilisation, c.memory_used_mb,
    c.temperature_c, c.sm_clock_mhz, c.throttle_reasons, c.processes, p.batch_id
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id
JOIN parts AS p ON p.part = c.part
ORDER BY c.ts, c.row_id;
DROP TABLE IF EXISTS temp.reached;
CREATE TEMP TABLE reached AS
SELECT c.server_id, gogh_window(c.ts, $window_s) AS window_start, max(c.ts) AS ts
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id
GROUP BY ALL;
INSERT OR IGNORE INTO touched
SELECT 'gpu_samples', server_id, window_start FROM temp.reached;
INSERT INTO high_water
SELECT 'gpu_samples', server_id, max(ts)
FROM temp.reached
GROUP BY server_id
ON CONFLICT DO UPDATE SET ts = greatest(ts, excluded.ts);
