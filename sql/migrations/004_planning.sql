-- Who plans a cycle. One row for each cycle that was claimed; whoever holds the token may go on.
-- These times are the clock's on the wall: a claim is about processes, not about the cluster.
CREATE TABLE cycle_claims (
    cycle_id VARCHAR PRIMARY KEY,
    token VARCHAR NOT NULL,
    request_key VARCHAR NOT NULL DEFAULT '',   -- of the run that asked; the same key is the same cycle
    request VARCHAR NOT NULL,                  -- JSON
    host VARCHAR NOT NULL,
    boot VARCHAR NOT NULL,
    pid INTEGER NOT NULL,
    process_started DOUBLE NOT NULL,           -- seconds since 1970, as the system tells
    heartbeat_at TIMESTAMPTZ NOT NULL,
    plan_id VARCHAR                            -- once the plan is stored
);

-- One row for each cycle that was finished: what people ask of it first.
CREATE TABLE cycle_results (
    cycle_id VARCHAR PRIMARY KEY,
    plan_id VARCHAR,
    running INTEGER,
    waiting INTEGER,
    power_w DOUBLE,                -- planned draw of the whole cluster
    saved_w DOUBLE,                -- against the plan before
    moves INTEGER,
    stops INTEGER,
    estimate_error DOUBLE,         -- median relative error of the means against the last window
    data_age_s DOUBLE,
    notes VARCHAR                  -- JSON list
);
