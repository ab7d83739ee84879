-- One row for each state of a cycle: how many ended so.
SELECT state, count(*) AS cycles FROM cycles GROUP BY state ORDER BY state;
