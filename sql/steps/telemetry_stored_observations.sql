-- What is stored of observations since a moment, newest first.
SELECT * FROM observations WHERE window_end >= $since ORDER BY window_end DESC LIMIT $limit
