-- Standing orders: drains, pins, caps and quotas. One row for each order, the newest first; the state
-- is that of the moment at which the cluster was last seen, or the newest order was given or lifted.
WITH clock AS (
    SELECT max(ts) AS now
    FROM (
        SELECT max(seen_at) AS ts FROM servers
        UNION ALL SELECT max(given_at) FROM orders
        UNION ALL SELECT max(lifted_at) FROM order_lifts
    )
)
SELECT
    o.order_id,
    CASE
        WHEN l.order_id IS NOT NULL THEN 'lifted'
        WHEN o.ends_at <= clock.now THEN 'over'
        WHEN o.begins_at > clock.now THEN 'planned'
        ELSE 'in force'
    END AS state,
    o.kind,
    o.subject,
    o.power_w,
    o.gpus,
    o.begins_at,
    o.ends_at,
    o.reason,
    o.who,
    o.given_at,
    l.who AS lifted_by,
    l.lifted_at
FROM orders AS o
CROSS JOIN clock
LEFT JOIN order_lifts AS l USING (order_id)
ORDER BY o.order_id DESC;
