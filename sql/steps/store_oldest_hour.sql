-- The oldest hour that is to leave the database; NULL where there is none.
SELECT date_trunc('hour', min(ts)) AS "hour" FROM {table} WHERE ts < $cutoff;
