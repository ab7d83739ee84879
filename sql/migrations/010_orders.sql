-- Standing orders: what a person ordered, which every plan keeps until it is lifted or over.
-- Both tables only grow. Times are the cluster's.

-- One row for each order that was given.
CREATE TABLE orders (
    order_id BIGINT PRIMARY KEY,
    kind VARCHAR NOT NULL,          -- 'drain', 'pin', 'cap', 'quota'
    subject VARCHAR NOT NULL,       -- the server, job or owner it is about; empty for a cap
    power_w DOUBLE,                 -- of a cap
    gpus INTEGER,                   -- of a quota
    begins_at TIMESTAMPTZ NOT NULL,
    ends_at TIMESTAMPTZ,            -- NULL: until it is lifted
    reason VARCHAR NOT NULL,
    who VARCHAR NOT NULL,
    given_at TIMESTAMPTZ NOT NULL
);

-- One row for each order that was lifted.
CREATE TABLE order_lifts (
    order_id BIGINT PRIMARY KEY,
    who VARCHAR NOT NULL,
    lifted_at TIMESTAMPTZ NOT NULL
);
