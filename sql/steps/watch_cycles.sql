-- One row for each state of a cycle: how many ended so, those dropped as too old among them.
SELECT state, sum(cycles)::BIGINT AS cycles
FROM (
    SELECT state, count(*) AS cycles FROM cycles GROUP BY state
    UNION ALL
    SELECT label, total FROM dropped_totals WHERE table_name = 'cycles'
)
GROUP BY state
ORDER BY state;
