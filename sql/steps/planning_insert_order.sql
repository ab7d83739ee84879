-- An order that was given.
INSERT INTO orders
    (order_id, kind, subject, power_w, gpus, begins_at, ends_at, reason, who, given_at)
VALUES ($order_id, $kind, $subject, $power_w, $gpus, $begins_at, $ends_at, $reason, $who, $given_at);
