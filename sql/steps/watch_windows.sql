-- The newest windows, oldest first: what the view says of them.
SELECT * FROM (SELECT * FROM windows ORDER BY window_start DESC LIMIT $rows) ORDER BY window_start;
