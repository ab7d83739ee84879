-- What became of plans: actions and how far they got, approvals, the pause switch, advice.
-- These tables only grow (one row for each thing that happened), so that nothing that was once
-- known is overwritten; the views say what holds now.

-- One row for each plan that was handed to the cluster room, once for each time its state changed.
CREATE TABLE execution_events (
    plan_id VARCHAR NOT NULL,
    cycle_id VARCHAR NOT NULL,
    manager VARCHAR NOT NULL,
    state VARCHAR NOT NULL,       -- 'running', 'done', 'delivered', 'advised', 'dry_run', 'waiting',
                                  -- 'rejected', 'paused', 'abandoned', 'interrupted', 'superseded'
    detail VARCHAR NOT NULL DEFAULT '',
    ts TIMESTAMPTZ NOT NULL,
    seq BIGINT NOT NULL           -- order within the plan
);

-- One row for each plan: the state of the cluster that it was made for, as JSON.
CREATE TABLE bases (
    plan_id VARCHAR NOT NULL,
    basis_json VARCHAR NOT NULL,
    base_w DOUBLE NOT NULL,       -- draw of the servers themselves at that moment
    ts TIMESTAMPTZ NOT NULL
);

-- One row for each action of a plan.
CREATE TABLE actions (
    plan_id VARCHAR NOT NULL,
    action_id VARCHAR NOT NULL,
    cycle_id VARCHAR NOT NULL,
    ordinal INTEGER NOT NULL,
    kind VARCHAR NOT NULL,        -- 'place', 'move', 'hold', 'on', 'off', 'limit'
    job_id VARCHAR,
    server_id VARCHAR,
    action_json VARCHAR NOT NULL  -- slots, partner, limit, dependencies
);

-- The journal: one row each time an action got further.
CREATE TABLE action_events (
    plan_id VARCHAR NOT NULL,
    action_id VARCHAR NOT NULL,
    state VARCHAR NOT NULL,       -- 'intended', 'sent', 'confirmed', 'failed', 'skipped'
    reason VARCHAR NOT NULL DEFAULT '',
    ts TIMESTAMPTZ NOT NULL,
    seq BIGINT NOT NULL           -- order within the plan
);

-- One row for each word about a plan's approval: asked, approved, rejected, expired.
CREATE TABLE approvals (
    plan_id VARCHAR NOT NULL,
    decision VARCHAR NOT NULL,
    who VARCHAR NOT NULL,
    why VARCHAR NOT NULL,
    ts TIMESTAMPTZ NOT NULL
);

-- One row each time the switch was turned.
CREATE TABLE pauses (
    paused BOOLEAN NOT NULL,
    who VARCHAR NOT NULL,
    why VARCHAR NOT NULL,
    ts TIMESTAMPTZ NOT NULL
);
