-- Series and windows whose observations are to be computed.
SELECT table_name, entity, epoch(window_start) AS window_start FROM touched ORDER BY ALL
