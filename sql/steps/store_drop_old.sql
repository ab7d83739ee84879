-- Drop what is older than the retention, in the tables that grow with every cycle. What is in use
-- stays, however old it is: the running plan and cycles that have not ended, jobs that the cluster
-- manager still shows, the state in which a server still is, the newest observations of each option.

INSERT INTO dropped_totals
SELECT 'cycles', state, '', count(*)
FROM cycles
WHERE window_start < $before AND state NOT IN ('queued', 'planning', 'planned', 'waiting')
    AND cycle_id NOT IN (SELECT cycle_id FROM running_plan)
GROUP BY state
ON CONFLICT DO UPDATE SET total = total + excluded.total;
DELETE FROM cycles
WHERE window_start < $before AND state NOT IN ('queued', 'planning', 'planned', 'waiting')
    AND cycle_id NOT IN (SELECT cycle_id FROM running_plan);
DELETE FROM cycle_claims WHERE cycle_id NOT IN (SELECT cycle_id FROM cycles);
DELETE FROM cycle_results WHERE cycle_id NOT IN (SELECT cycle_id FROM cycles);
DELETE FROM estimates WHERE estimated_at < $before AND cycle_id NOT IN (SELECT cycle_id FROM cycles);
DELETE FROM plans WHERE created_at < $before AND cycle_id NOT IN (SELECT cycle_id FROM cycles);
DELETE FROM placements WHERE plan_id NOT IN (SELECT plan_id FROM plans);
DELETE FROM moves WHERE plan_id NOT IN (SELECT plan_id FROM plans);
DELETE FROM power_actions WHERE plan_id NOT IN (SELECT plan_id FROM plans);
DELETE FROM waiting WHERE plan_id NOT IN (SELECT plan_id FROM plans);

-- Plans that people hand over themselves are in the journal only.
DELETE FROM execution_events
WHERE plan_id NOT IN (SELECT plan_id FROM plans)
    AND plan_id NOT IN (SELECT plan_id FROM execution_events WHERE ts >= $before);
DELETE FROM action_events
WHERE plan_id NOT IN (SELECT plan_id FROM plans)
    AND plan_id NOT IN (SELECT plan_id FROM action_events WHERE ts >= $before);
DELETE FROM actions
WHERE plan_id NOT IN (SELECT plan_id FROM plans)
    AND plan_id NOT IN (SELECT plan_id FROM action_events)
    AND plan_id NOT IN (SELECT plan_id FROM execution_events);
DELETE FROM bases WHERE ts < $before AND plan_id NOT IN (SELECT plan_id FROM plans);
DELETE FROM approvals WHERE ts < $before AND plan_id NOT IN (SELECT plan_id FROM plans);
DELETE FROM approval_forms WHERE ts < $before AND plan_id NOT IN (SELECT plan_id FROM plans);

DELETE FROM model_versions
WHERE created_at < $before
    AND version NOT IN (
        SELECT arg_max(version, promoted_at) FROM model_versions WHERE promoted_at IS NOT NULL GROUP BY network
    );

-- An option that has not been seen for long keeps what was last measured of it.
DELETE FROM observations
WHERE window_end < $before
    AND observation_id NOT IN (
        SELECT observation_id
        FROM observations
        QUALIFY
            row_number() OVER (
                PARTITION BY job_class, gpu_type, gpus, partner_class, power_limit_w
                ORDER BY window_end DESC, observation_id
            ) <= $newest
    );
DELETE FROM job_events
WHERE ts < $before AND job_id NOT IN (SELECT job_id FROM jobs WHERE seen_at >= $before);
DELETE FROM job_promises
WHERE since < $before AND job_id NOT IN (SELECT job_id FROM jobs WHERE seen_at >= $before);
DELETE FROM high_water
WHERE table_name = 'job_progress' AND ts < $before
    AND entity NOT IN (SELECT job_id FROM jobs WHERE seen_at >= $before);
DELETE FROM jobs
WHERE seen_at < $before
    AND job_id NOT IN (SELECT job_id FROM observations)
    AND job_id NOT IN (SELECT partner_job_id FROM observations WHERE partner_job_id IS NOT NULL);
DELETE FROM job_windows WHERE window_start < $before;
DELETE FROM measured_windows WHERE window_end < $before;
DELETE FROM server_states AS s
USING (SELECT server_id, max(since) AS since FROM server_states WHERE since < $before GROUP BY server_id) AS held
WHERE s.server_id = held.server_id AND s.since < held.since;

INSERT INTO dropped_totals
WITH dropped AS (SELECT * FROM ingest_batches WHERE ingested_at < $before),
totals AS (
    SELECT
        split_part(source, '/', 1) AS label,
        sum(rows_clean) AS clean,
        sum(rows_quarantined) AS quarantined,
        sum(rows_duplicate) AS duplicate,
        sum(rows_late) AS late,
        count(*) FILTER (status = 'refused') AS refused
    FROM dropped
    GROUP BY label
)
SELECT 'ingest_batches', label, fate, total
FROM (UNPIVOT totals ON clean, quarantined, duplicate, late, refused INTO NAME fate VALUE total)
ON CONFLICT DO UPDATE SET total = total + excluded.total;
DELETE FROM ingest_batches WHERE ingested_at < $before;
DELETE FROM quarantine WHERE quarantined_at < $before;
DELETE FROM late_rows WHERE kept_at < $before AND NOT coalesce(early, false);
DELETE FROM contract_runs WHERE run_at < $before;
