-- How far files have been taken in: the registered `positions` replace what is known of them.
INSERT OR REPLACE INTO spool_files BY NAME
SELECT *, $now AS updated_at FROM positions;
