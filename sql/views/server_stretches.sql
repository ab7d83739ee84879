-- One row for each server and stretch of time in one power state: the watts it drew itself, without
-- its GPUs, until the next change ('infinity' where it lasts). A server that was found on after it
-- had been off or down was booting before: for as long as its base draw takes to make the cost of
-- the switch.
CREATE OR REPLACE VIEW server_stretches AS
WITH states AS (
    SELECT *, coalesce(lead(since) OVER turn, 'infinity') AS until, lead(power) OVER turn AS next_power
    FROM server_states
    WINDOW turn AS (PARTITION BY server_id ORDER BY since)
),
booting AS (
    SELECT
        *,
        CASE
            WHEN power IN ('off', 'down') AND next_power = 'on' AND base_w > 0
                THEN greatest(since, until - to_seconds(switch_cost_j / base_w))
            ELSE until
        END AS boots_at
    FROM states
)
SELECT
    server_id,
    since,
    boots_at AS until,
    power,
    CASE WHEN power = 'off' THEN off_w WHEN power IN ('down', 'gone') THEN 0 ELSE base_w END AS power_w,
    gpus,
    foreign_gpus
FROM booting
WHERE since < boots_at
UNION ALL
SELECT server_id, boots_at, until, 'switching_on', base_w, gpus, foreign_gpus
FROM booting
WHERE boots_at < until;
