-- The tables every room stands on. All times are UTC (TIMESTAMPTZ); a missing value is NULL.

-- One row for each server, as last seen.
CREATE TABLE servers (
    server_id VARCHAR PRIMARY KEY,
    gpu_type VARCHAR NOT NULL,
    gpus INTEGER NOT NULL,
    base_w DOUBLE NOT NULL,
    off_w DOUBLE NOT NULL DEFAULT 0,
    switch_cost_j DOUBLE NOT NULL DEFAULT 0,
    power VARCHAR NOT NULL,
    drain BOOLEAN NOT NULL DEFAULT false,
    keep_on BOOLEAN NOT NULL DEFAULT false,
    foreign_gpus INTEGER[] NOT NULL DEFAULT [],
    seen_at TIMESTAMPTZ NOT NULL
);

-- One row for each GPU, as last seen.
CREATE TABLE gpus (
    server_id VARCHAR NOT NULL,
    gpu_index INTEGER NOT NULL,
    gpu_type VARCHAR NOT NULL,
    uuid VARCHAR,
    power_limit_w DOUBLE,
    seen_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (server_id, gpu_index)
);

-- One row for each job, with its newest state; descriptors that were not declared are NULL.
CREATE TABLE jobs (
    job_id VARCHAR PRIMARY KEY,
    name VARCHAR,
    owner VARCHAR,
    job_class VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    batch_size INTEGER,
    kind VARCHAR NOT NULL,
    family VARCHAR,
    "precision" VARCHAR,
    parameters DOUBLE,
    flops_per_step DOUBLE,
    bytes_per_step DOUBLE,
    memory_bytes DOUBLE,
    mode VARCHAR NOT NULL,
    gpu_counts INTEGER[] NOT NULL,
    max_gpus INTEGER NOT NULL,
    required_throughput DOUBLE NOT NULL,
    unit VARCHAR NOT NULL,
    total_steps DOUBLE,
    deadline_at TIMESTAMPTZ,
    priority DOUBLE NOT NULL,
    shareable VARCHAR NOT NULL,          -- 'true', 'false' or 'owner'
    movable BOOLEAN NOT NULL,
    move_cost_j DOUBLE NOT NULL,
    surplus_j_per_step DOUBLE NOT NULL DEFAULT 0,
    submitted_at TIMESTAMPTZ NOT NULL,
    state VARCHAR NOT NULL,
    slots VARCHAR NOT NULL DEFAULT '[]', -- JSON list of {server, gpus}
    since TIMESTAMPTZ,
    moved_at TIMESTAMPTZ,
    moves INTEGER NOT NULL DEFAULT 0,
    steps_done DOUBLE NOT NULL DEFAULT 0,
    seen_at TIMESTAMPTZ NOT NULL
);

-- One row for each thing that happened to a job: submitted, started, moved, stopped, finished,
-- failed, cancelled, checkpointed, partner.
CREATE TABLE job_events (
    job_id VARCHAR NOT NULL,
    ts TIMESTAMPTZ NOT NULL,
    event VARCHAR NOT NULL,
    server_id VARCHAR,
    gpus INTEGER[],
    partner_job_id VARCHAR,
    detail VARCHAR,
    batch_id VARCHAR
);

-- One row for each GPU and second, hot part; older ones are in Parquet (see view gpu_samples_all).
CREATE TABLE gpu_samples (
    ts TIMESTAMPTZ NOT NULL,
    server_id VARCHAR NOT NULL,
    gpu_index INTEGER NOT NULL,
    gpu_type VARCHAR,
    power_w DOUBLE,
    energy_j DOUBLE,          -- counter since the driver started
    utilisation DOUBLE,       -- 0 to 1
    memory_used_mb DOUBLE,
    temperature_c DOUBLE,
    sm_clock_mhz DOUBLE,
    throttle_reasons BIGINT,
    processes INTEGER,
    batch_id VARCHAR
);

-- One row for each report of a job: steps done so far at that time.
CREATE TABLE job_progress (
    ts TIMESTAMPTZ NOT NULL,
    job_id VARCHAR NOT NULL,
    steps DOUBLE NOT NULL,        -- since the job was submitted; goes back only after a restart
    attempt INTEGER NOT NULL DEFAULT 0,
    rank INTEGER NOT NULL DEFAULT 0,
    event VARCHAR,                -- NULL, 'checkpoint', 'start', 'end'
    batch_id VARCHAR
);

-- The ledger: one row for each batch of telemetry that was taken in.
CREATE TABLE ingest_batches (
    batch_id VARCHAR PRIMARY KEY,
    source VARCHAR NOT NULL,
    table_name VARCHAR NOT NULL,
    range_from VARCHAR,
    range_to VARCHAR,
    checksum VARCHAR,
    rows_in BIGINT NOT NULL,
    rows_clean BIGINT NOT NULL,
    rows_quarantined BIGINT NOT NULL,
    rows_duplicate BIGINT NOT NULL,
    rows_late BIGINT NOT NULL,
    status VARCHAR NOT NULL,      -- 'accepted', 'warned', 'refused'
    detail VARCHAR,
    ingested_at TIMESTAMPTZ NOT NULL
);

-- One row for each row that broke its contract, with what it broke.
CREATE TABLE quarantine (
    quarantine_id VARCHAR PRIMARY KEY,
    batch_id VARCHAR NOT NULL,
    table_name VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    line BIGINT,
    expectation VARCHAR NOT NULL,
    column_name VARCHAR,
    value VARCHAR,
    reason VARCHAR NOT NULL,
    row_json VARCHAR NOT NULL,
    status VARCHAR NOT NULL DEFAULT 'held',   -- 'held', 'readmitted', 'dropped'
    quarantined_at TIMESTAMPTZ NOT NULL,
    settled_at TIMESTAMPTZ
);

-- One row for each (job, GPU type, GPUs, partner, window): what was really reached.
CREATE TABLE observations (
    observation_id VARCHAR PRIMARY KEY,
    job_id VARCHAR NOT NULL,
    job_class VARCHAR NOT NULL,
    gpu_type VARCHAR NOT NULL,
    gpus INTEGER NOT NULL,
    partner_job_id VARCHAR,
    partner_class VARCHAR,
    server_id VARCHAR,
    gpu_indices INTEGER[],
    window_start TIMESTAMPTZ NOT NULL,
    window_end TIMESTAMPTZ NOT NULL,
    throughput DOUBLE NOT NULL,
    throughput_spread DOUBLE,     -- robust standard deviation of the windowed rates
    samples BIGINT NOT NULL,
    unit VARCHAR NOT NULL,
    power_w DOUBLE,               -- of the option's GPUs; of this job's share when estimated
    energy_j DOUBLE,
    power_estimated BOOLEAN NOT NULL DEFAULT false,
    power_limit_w DOUBLE,
    computed_at TIMESTAMPTZ NOT NULL
);

-- One row for each estimate that a cycle planned with.
CREATE TABLE estimates (
    cycle_id VARCHAR NOT NULL,
    job_class VARCHAR NOT NULL,
    gpu_type VARCHAR NOT NULL,
    gpus INTEGER NOT NULL,
    partner_class VARCHAR,
    mean DOUBLE NOT NULL,
    low DOUBLE NOT NULL,
    high DOUBLE NOT NULL,
    power_w DOUBLE,
    feasible_probability DOUBLE NOT NULL,
    network VARCHAR NOT NULL,
    model_version VARCHAR,
    estimated_at TIMESTAMPTZ NOT NULL
);

-- One row for each version of a network.
CREATE TABLE model_versions (
    version VARCHAR PRIMARY KEY,
    network VARCHAR NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    promoted_at TIMESTAMPTZ,
    data_sha256 VARCHAR,
    code_version VARCHAR,
    scores VARCHAR,               -- JSON
    reason VARCHAR
);

-- One row for each cycle that was begun.
CREATE TABLE cycles (
    cycle_id VARCHAR PRIMARY KEY,
    window_start TIMESTAMPTZ NOT NULL,
    revision INTEGER NOT NULL,
    reason VARCHAR,
    state VARCHAR NOT NULL,       -- 'planning', 'planned', 'emitted', 'waiting', 'rejected', 'failed', 'missed'
    detail VARCHAR,
    degraded VARCHAR,             -- JSON list of what was done without
    seconds VARCHAR,              -- JSON {step: seconds}
    begun_at TIMESTAMPTZ NOT NULL,
    ended_at TIMESTAMPTZ
);

-- One row for each plan, whole and as JSON.
CREATE TABLE plans (
    plan_id VARCHAR PRIMARY KEY,
    cycle_id VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    solver VARCHAR NOT NULL,
    solve_s DOUBLE NOT NULL,
    cost_w DOUBLE NOT NULL,
    bound_w DOUBLE NOT NULL,
    gap DOUBLE NOT NULL,
    power_w DOUBLE,               -- planned draw of the whole cluster
    running INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    plan_json VARCHAR NOT NULL,
    problem_sha256 VARCHAR,
    created_at TIMESTAMPTZ NOT NULL,
    emitted_at TIMESTAMPTZ
);

-- One row for each placed job and slot of a plan.
CREATE TABLE placements (
    plan_id VARCHAR NOT NULL,
    job_id VARCHAR NOT NULL,
    server_id VARCHAR NOT NULL,
    gpus INTEGER[] NOT NULL,
    partner_job_id VARCHAR,
    throughput DOUBLE NOT NULL,
    required_throughput DOUBLE,
    power_limit_w DOUBLE
);

-- One row for each move or stop of a plan.
CREATE TABLE moves (
    plan_id VARCHAR NOT NULL,
    step INTEGER NOT NULL,
    job_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,        -- 'move' or 'stop'
    from_slots VARCHAR NOT NULL,
    to_slots VARCHAR,
    reason VARCHAR
);

-- One row for each server a plan switches, and each power limit it sets.
CREATE TABLE power_actions (
    plan_id VARCHAR NOT NULL,
    server_id VARCHAR NOT NULL,
    gpu_index INTEGER,
    action VARCHAR NOT NULL,      -- 'on', 'off', 'limit'
    watts DOUBLE
);

-- One row for each waiting job of a plan, with the reason.
CREATE TABLE waiting (
    plan_id VARCHAR NOT NULL,
    job_id VARCHAR NOT NULL,
    reason VARCHAR NOT NULL
);
