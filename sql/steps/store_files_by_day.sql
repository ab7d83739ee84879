-- Files that count, of days that have left the database wholly.
SELECT table_name, date_trunc('day', range_from) AS "day", file
FROM sample_files
WHERE retired_at IS NULL AND date_trunc('day', range_from) + INTERVAL 1 DAY <= $cutoff
ORDER BY table_name, "day", range_from, file;
