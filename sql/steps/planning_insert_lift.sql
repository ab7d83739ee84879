-- An order that was lifted.
INSERT INTO order_lifts (order_id, who, lifted_at) VALUES ($order_id, $who, $lifted_at);
