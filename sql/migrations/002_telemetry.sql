-- What ingest and the data contracts keep besides the tables of 001.

-- One row for each file of the spool that was seen: how far it has been taken in.
CREATE TABLE spool_files (
    path VARCHAR PRIMARY KEY,        -- below the spool
    head_sha256 VARCHAR NOT NULL,    -- of the first `head_bytes`: another file under the old name is told
    head_bytes BIGINT NOT NULL,
    position BIGINT NOT NULL,        -- bytes (text) or rows (gzip, Parquet) taken in
    lines BIGINT NOT NULL,           -- lines or rows taken in
    size BIGINT NOT NULL,
    mtime_ns BIGINT NOT NULL,
    header VARCHAR,                  -- first line of a CSV file
    anchor DOUBLE,                   -- time of the last row of a log without times, as epoch seconds
    skew_s DOUBLE NOT NULL DEFAULT 0,
    status VARCHAR NOT NULL,         -- 'taken', 'partial', 'refused'
    detail VARCHAR,
    updated_at TIMESTAMPTZ NOT NULL
);

-- One row for each series: its newest time, against which later rows are late.
CREATE TABLE high_water (
    table_name VARCHAR NOT NULL,
    entity VARCHAR NOT NULL,         -- server, or job
    ts TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (table_name, entity)
);

-- One row for each source that is asked by time (Prometheus): where it goes on.
CREATE TABLE watermarks (
    source VARCHAR PRIMARY KEY,
    ts TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);

-- One row for each row that came too late to be used; kept, not used.
CREATE TABLE late_rows (
    late_id VARCHAR PRIMARY KEY,
    batch_id VARCHAR NOT NULL,
    table_name VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    line BIGINT,
    ts TIMESTAMPTZ,
    row_json VARCHAR NOT NULL,
    kept_at TIMESTAMPTZ NOT NULL
);

-- One row for each series and window in which rows arrived: its observations are to be computed.
CREATE TABLE touched (
    table_name VARCHAR NOT NULL,
    entity VARCHAR NOT NULL,         -- server, or job
    window_start TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (table_name, entity, window_start)
);

-- The start of the window that holds a moment; windows are counted from midnight UTC.
CREATE MACRO gogh_window(ts, window_s) AS
    date_trunc('day', ts)
    + to_seconds(floor((epoch(ts) - epoch(date_trunc('day', ts))) / window_s) * window_s);

-- One row for each expectation that was run on a batch.
CREATE TABLE contract_runs (
    run_id VARCHAR NOT NULL,
    table_name VARCHAR NOT NULL,
    expectation VARCHAR NOT NULL,
    column_name VARCHAR,
    level VARCHAR NOT NULL,          -- 'warn' or 'refuse'
    success BOOLEAN NOT NULL,
    rows_checked BIGINT NOT NULL,
    rows_failed BIGINT NOT NULL,
    observed VARCHAR,
    suite_sha256 VARCHAR NOT NULL,
    sources VARCHAR,
    run_at TIMESTAMPTZ NOT NULL
);

-- One row for each server and receipt: how far its clock was from the others'.
CREATE TABLE clock_offsets (
    server_id VARCHAR NOT NULL,
    received_at TIMESTAMPTZ NOT NULL,
    offset_s DOUBLE NOT NULL,        -- against the median of the servers received in the same run
    corrected_s DOUBLE NOT NULL
);

-- One row for each server and batch of a run that is not settled yet: how old its newest sample was
-- when the batch was received. Kept in the batch's own transaction, so that a kill loses none.
CREATE TABLE clock_receipts (
    server_id VARCHAR NOT NULL,
    behind_s DOUBLE NOT NULL
);

-- One row for each energy window that a monitor measured (Zeus), for each GPU.
CREATE TABLE energy_windows (
    source VARCHAR NOT NULL,
    window_name VARCHAR NOT NULL,
    start_s DOUBLE NOT NULL,         -- the monitor's own clock
    elapsed_s DOUBLE NOT NULL,
    gpu_index INTEGER NOT NULL,
    gpu_type VARCHAR,
    label VARCHAR,                   -- what ran, from the file's name
    power_limit_w DOUBLE,
    energy_j DOUBLE NOT NULL,
    power_w DOUBLE,
    batch_id VARCHAR
);
