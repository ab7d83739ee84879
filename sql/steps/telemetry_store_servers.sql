-- Clean server records of the registered batch in the place of older ones; what changed is kept with its time. A change is
-- dated as the manager says, where that is later than the change before it, else when it was seen ($at).
DROP TABLE IF EXISTS temp.before;
CREATE TEMP TABLE before AS
FROM server_states QUALIFY row_number() OVER (PARTITION BY server_id ORDER BY since DESC) = 1;
INSERT OR REPLACE INTO server_states BY NAME
SELECT
    c.server_id,
    CASE WHEN c.since <= $at AND (b.since IS NULL OR c.since > b.since) THEN c.since ELSE $at END AS since,
    c.power, c.base_w, c.off_w, c.switch_cost_j, c.gpus, c.foreign_gpus
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id
LEFT JOIN temp.before AS b ON b.server_id = c.server_id
WHERE b.server_id IS NULL OR (c.since > b.since AND c.since <= $at)
    OR (c.power, c.base_w, c.off_w, c.switch_cost_j, c.gpus, c.foreign_gpus)
        <> (b.power, b.base_w, b.off_w, b.switch_cost_j, b.gpus, b.foreign_gpus);
INSERT OR REPLACE INTO server_states BY NAME
SELECT b.* REPLACE ($at AS since, 'gone' AS power)
FROM temp.before AS b
ANTI JOIN checked AS c ON c.server_id = b.server_id
WHERE b.power <> 'gone' AND EXISTS (FROM checked);
INSERT OR REPLACE INTO servers BY NAME
SELECT
    c.server_id, c.gpu_type, c.gpus, c.base_w, c.off_w, c.switch_cost_j, c.power, c.drain, c.keep_on,
    c.foreign_gpus, $now AS seen_at
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id;
