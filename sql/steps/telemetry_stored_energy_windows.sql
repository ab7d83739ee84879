-- What is stored of energy_windows; they have no time of the world.
SELECT * EXCLUDE (batch_id, source) FROM energy_windows WHERE $since IS NOT NULL LIMIT $limit
