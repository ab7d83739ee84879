-- For the benchmark: the servers, jobs, events, observations and estimates the queries read.
INSERT INTO servers
SELECT 's' || i, ['v100', 'a100', 't4', 'p100'][1 + i % 4], 8, 300, 0, 0, 'on', false, false, [], $start
FROM range($gpus // 8) AS r (i);
INSERT INTO gpus
SELECT 's' || (i // 8), (i % 8)::INTEGER, ['v100', 'a100', 't4', 'p100'][1 + (i // 8) % 4], NULL, NULL, $start
FROM range($gpus::BIGINT) AS r (i);
INSERT INTO jobs BY NAME
SELECT
    'j' || i AS job_id, 'user' || (i % 20) AS owner, 'class ' || (i % 40) AS job_class, 'm' AS model,
    'training' AS kind, 'gang' AS mode, [1] AS gpu_counts, 1 AS max_gpus, 5.0 AS required_throughput,
    'steps/s' AS unit, 1.0 AS priority, 'true' AS shareable, true AS movable, 0.0 AS move_cost_j,
    $start AS submitted_at, if(i % 10 = 0, 'waiting', 'running') AS state, $start AS seen_at,
    '[{"server": "s' || (i // 8) || '", "gpus": [' || (i % 8) || ']}]' AS slots
FROM range($gpus::BIGINT) AS r (i);
INSERT INTO job_events BY NAME
SELECT
    'j' || i AS job_id, $start::TIMESTAMPTZ AS ts, 'started' AS event, 's' || (i // 8) AS server_id,
    [(i % 8)::INTEGER] AS gpus
FROM range($gpus::BIGINT) AS r (i)
WHERE i % 10 <> 0;
INSERT INTO observations BY NAME
SELECT
    'o' || i || '-' || w AS observation_id, 'j' || i AS job_id, 'class ' || (i % 40) AS job_class,
    ['v100', 'a100', 't4', 'p100'][1 + (i // 8) % 4] AS gpu_type, 1 AS gpus,
    if(i % 3 = 0, 'class ' || (i % 7), NULL) AS partner_class, 's' || (i // 8) AS server_id,
    [(i % 8)::INTEGER] AS gpu_indices, $start::TIMESTAMPTZ + to_minutes(5 * w) AS window_start,
    $start::TIMESTAMPTZ + to_minutes(5 * w + 5) AS window_end, 5 + hash(i * 97 + w) % 100 / 50.0 AS throughput,
    60 AS samples, 'steps/s' AS unit, 200.0 AS power_w, $start AS computed_at
FROM range($gpus::BIGINT) AS r (i), range(20) AS s (w);
INSERT INTO estimates BY NAME
SELECT
    'c' AS cycle_id, job_class, gpu_type, gpus, partner_class, avg(throughput) * 1.05 AS mean, 4.0 AS low,
    8.0 AS high, 1.0 AS feasible_probability, 'P2' AS network, $start AS estimated_at
FROM observations
GROUP BY job_class, gpu_type, gpus, partner_class;
