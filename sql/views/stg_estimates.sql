-- One row for each estimate a cycle planned with, with the beginning of its window.
CREATE OR REPLACE VIEW stg_estimates AS
SELECT e.*, coalesce(c.window_start, e.estimated_at) AS window_start
FROM estimates AS e
LEFT JOIN cycles AS c USING (cycle_id);
