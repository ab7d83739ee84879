-- Clean server records of the registered batch in the place of older ones.
INSERT OR REPLACE INTO servers BY NAME
SELECT
    c.server_id, c.gpu_type, c.gpus, c.base_w, c.off_w, c.switch_cost_j, c.power, c.drain, c.keep_on,
    c.foreign_gpus, $now AS seen_at
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id;
