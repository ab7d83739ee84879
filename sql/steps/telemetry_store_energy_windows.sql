-- Clean energy windows of the registered batch into their table.
INSERT INTO energy_windows
SELECT
    p.source, c.window_name, c.start_s, c.elapsed_s, c.gpu_index, c.gpu_type, c.label, c.power_limit_w,
    c.energy_j, c.power_w, p.batch_id
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id
JOIN parts AS p ON p.part = c.part
ORDER BY c.row_id;
