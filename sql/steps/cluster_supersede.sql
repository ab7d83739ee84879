-- Actions of other plans that were never settled, and those plans, end: a newer plan takes over.
CREATE OR REPLACE TEMP TABLE superseded AS
SELECT plan_id, cycle_id, manager
FROM executions
WHERE plan_id <> $plan_id AND state IN ('running', 'paused', 'interrupted', 'delivered', 'waiting');

INSERT INTO action_events BY NAME
SELECT
    journal.plan_id,
    journal.action_id,
    CASE journal.state WHEN 'sent' THEN 'failed' ELSE 'skipped' END AS state,
    $why AS reason,
    $now AS ts,
    (SELECT max(events.seq) FROM action_events AS events WHERE events.plan_id = journal.plan_id)
        + row_number() OVER (PARTITION BY journal.plan_id ORDER BY journal.ordinal) AS seq
FROM journal
JOIN superseded USING (plan_id)
WHERE journal.state IN ('intended', 'sent');

INSERT INTO execution_events BY NAME
SELECT
    plan_id,
    cycle_id,
    manager,
    'superseded' AS state,
    $why AS detail,
    $now AS ts,
    (
        SELECT max(events.seq)
        FROM (
            SELECT seq FROM execution_events WHERE execution_events.plan_id = superseded.plan_id
            UNION ALL
            SELECT seq FROM action_events WHERE action_events.plan_id = superseded.plan_id
        ) AS events
    ) + 1 AS seq
FROM superseded;

DROP TABLE superseded;
