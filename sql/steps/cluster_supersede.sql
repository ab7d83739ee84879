-- Older plans end, because this one was handed over or asks a person: questions that are open, and
-- (when it was handed over) plans that were not finished, with their actions and cycles.
CREATE OR REPLACE TEMP TABLE older AS
WITH placed AS (
    SELECT plans.plan_id, cycles.window_start, cycles.revision
    FROM plans
    JOIN cycles USING (cycle_id)
),
newer AS (
    SELECT theirs.plan_id
    FROM placed AS theirs
    JOIN placed AS mine ON mine.plan_id = $plan_id
    WHERE (theirs.window_start, theirs.revision) > (mine.window_start, mine.revision)
)
SELECT
    plan_id,
    executions.cycle_id,
    executions.manager,
    coalesce(questions.decision = 'asked', false) AS is_open
FROM executions
FULL JOIN questions USING (plan_id)
WHERE plan_id <> $plan_id
  AND plan_id NOT IN (SELECT newer.plan_id FROM newer)
  AND (
      is_open
      OR ($handed_over AND executions.state IN ('running', 'paused', 'interrupted', 'delivered', 'waiting'))
  );

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
JOIN older USING (plan_id)
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
            SELECT seq FROM execution_events WHERE execution_events.plan_id = older.plan_id
            UNION ALL
            SELECT seq FROM action_events WHERE action_events.plan_id = older.plan_id
        ) AS events
    ) + 1 AS seq
FROM older
WHERE cycle_id IS NOT NULL;

INSERT INTO approvals BY NAME
SELECT plan_id, 'superseded' AS decision, 'gogh' AS who, $why AS why, $now AS ts
FROM older
WHERE is_open;

UPDATE cycles
SET state = 'superseded', detail = $why, ended_at = $now
WHERE state = 'waiting' AND cycle_id IN (SELECT cycle_id FROM older);

DROP TABLE older;
