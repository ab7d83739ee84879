-- Which rows of the registered batch are in the table already; a window never comes too late.
SELECT
    c.row_id,
    EXISTS (
        FROM energy_windows AS t
        WHERE t.window_name = c.window_name AND t.start_s = c.start_s AND t.gpu_index = c.gpu_index
            AND t.gpu_type IS NOT DISTINCT FROM c.gpu_type AND t.label IS NOT DISTINCT FROM c.label
            AND t.elapsed_s = c.elapsed_s
    ) AS known,
    false AND $late_s > 0 AS late
FROM checked AS c
WHERE known OR late
