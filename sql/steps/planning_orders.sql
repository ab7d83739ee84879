-- Every order that was ever given, the oldest first, with who lifted it and when.
SELECT o.order_id, o.kind, o.subject, o.power_w, o.gpus, o.begins_at, o.ends_at, o.reason, o.who,
       o.given_at, l.who AS lifted_by, l.lifted_at
FROM orders AS o
LEFT JOIN order_lifts AS l USING (order_id)
ORDER BY o.order_id;
