-- What jobs got of their promises in the registered windows (temp.due), into temp.judged. The life of a
-- job is cut wherever its throughput or promise may change; each piece has the throughput of the steps
-- reported in it. While a job waits, starts or moves it makes no steps; where a running job does not
-- report, the throughput is not known.
DROP TABLE IF EXISTS temp.lives;
CREATE TEMP TABLE lives AS
WITH near AS (
    FROM jobs WHERE seen_at > $since AND submitted_at < $until
),
ends AS (
    SELECT job_id, max(ts) AS ts
    FROM job_events SEMI JOIN near USING (job_id)
    WHERE event IN ('finished', 'failed', 'cancelled')
    GROUP BY job_id
)
SELECT
    n.job_id, n.mode, n.submitted_at AS since,
    CASE WHEN n.state IN ('waiting', 'running', 'moving') THEN n.seen_at ELSE coalesce(e.ts, n.seen_at) END AS until
FROM near AS n
LEFT JOIN ends AS e USING (job_id);

DROP TABLE IF EXISTS temp.promised;
CREATE TEMP TABLE promised AS
WITH marks AS (
    SELECT l.job_id, unnest([d.window_start, d.until, l.since, l.until]) AS ts
    FROM temp.lives AS l CROSS JOIN temp.due AS d
    UNION
    SELECT job_id, since FROM job_promises
    UNION
    SELECT job_id, ts FROM job_events WHERE event IN ('started', 'moved', 'stopped', 'partner')
    UNION
    SELECT l.job_id, p.emitted_at FROM temp.lives AS l CROSS JOIN plans AS p WHERE p.emitted_at > $since
),
cut AS (
    SELECT job_id, ts AS began, lead(ts) OVER (PARTITION BY job_id ORDER BY ts) AS ended
    FROM marks SEMI JOIN temp.lives USING (job_id)
    WHERE ts BETWEEN $since AND $until
)
SELECT
    d.window_start, c.job_id, l.mode, c.began, c.ended, epoch(c.ended) - epoch(c.began) AS seconds,
    p.required_throughput
FROM cut AS c
JOIN temp.lives AS l ON l.job_id = c.job_id AND c.began >= l.since AND c.ended <= l.until
JOIN temp.due AS d ON c.began >= d.window_start AND c.ended <= d.until
ASOF JOIN job_promises AS p ON p.job_id = c.job_id AND c.began >= p.since
WHERE p.required_throughput > 0;

DROP TABLE IF EXISTS temp.judged;
CREATE TEMP TABLE judged AS
WITH reports AS (
    SELECT
        job_id, "rank", ts, steps, lag(ts) OVER turn AS before_ts, lag(steps) OVER turn AS before_steps
    FROM job_progress_all SEMI JOIN temp.lives USING (job_id)
    WHERE ts BETWEEN $since - INTERVAL 2 MINUTE AND $until + INTERVAL 2 MINUTE
    WINDOW turn AS (PARTITION BY job_id, "rank", attempt ORDER BY ts, steps)
),
gains AS (
    SELECT *, (steps - before_steps) / (epoch(ts) - epoch(before_ts)) AS throughput
    FROM reports
    WHERE ts > before_ts AND ts - before_ts <= INTERVAL 2 MINUTE AND steps >= before_steps
),
inside AS (
    SELECT
        p.job_id, p.mode, p.began, g."rank", g.throughput,
        epoch(least(p.ended, g.ts)) - epoch(greatest(p.began, g.before_ts)) AS seconds
    FROM temp.promised AS p
    JOIN gains AS g ON g.job_id = p.job_id AND g.ts > p.began AND g.before_ts < p.ended
),
by_rank AS (
    SELECT job_id, mode, began, "rank", sum(throughput * seconds) / sum(seconds) AS throughput
    FROM inside
    GROUP BY ALL
),
reached AS (
    -- Each replica of a spread job counts; of a gang one rank speaks for all.
    SELECT job_id, began, if(mode = 'spread', sum(throughput), arg_min(throughput, "rank")) AS throughput
    FROM by_rank
    GROUP BY job_id, mode, began
),
places AS (
    SELECT job_id, ts, bool_or(event <> 'stopped') AS running
    FROM job_events SEMI JOIN temp.lives USING (job_id)
    WHERE event IN ('started', 'moved', 'stopped')
    GROUP BY job_id, ts
)
SELECT
    p.window_start, p.job_id, p.seconds, p.required_throughput,
    CASE WHEN h.running THEN r.throughput ELSE coalesce(r.throughput, 0) END AS throughput
FROM temp.promised AS p
LEFT JOIN reached AS r ON r.job_id = p.job_id AND r.began = p.began
ASOF LEFT JOIN places AS h ON h.job_id = p.job_id AND p.began >= h.ts;
