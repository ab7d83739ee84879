-- The cluster now. One row for each GPU type: servers on and off, GPUs free, busy and shared, watts
-- (none where servers are on and no GPU of them was measured yet).
WITH machines AS (
    SELECT
        gpu_type,
        count(*) AS servers,
        count(*) FILTER (power = 'on') AS servers_on,
        sum(CASE WHEN power = 'off' THEN off_w ELSE base_w END) AS base_w
    FROM servers
    GROUP BY gpu_type
),
cards AS (
    SELECT
        gpu_type,
        count(*) AS gpus,
        count(*) FILTER (len(jobs) > 0) AS gpus_busy,
        count(*) FILTER (len(jobs) > 1) AS gpus_shared,
        sum(power_w) FILTER (server_state = 'on') AS gpu_w,
        avg(utilisation) FILTER (server_state = 'on') AS utilisation
    FROM gpus_now
    GROUP BY gpu_type
)
SELECT
    gpu_type,
    servers,
    servers_on,
    coalesce(gpus, 0) AS gpus,
    coalesce(gpus_busy, 0) AS gpus_busy,
    coalesce(gpus_shared, 0) AS gpus_shared,
    round(CASE WHEN servers_on > 0 THEN gpu_w ELSE 0 END + base_w, 1) AS power_w,
    round(utilisation, 3) AS utilisation
FROM machines
LEFT JOIN cards USING (gpu_type)
ORDER BY gpu_type;
