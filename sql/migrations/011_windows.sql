-- What energy and kept promises of past windows are told from, and what was found for each window.

-- One row for each change of a server, seen or told by the cluster manager; it holds until the next.
CREATE TABLE server_states (
    server_id VARCHAR NOT NULL,
    since TIMESTAMPTZ NOT NULL,
    power VARCHAR NOT NULL,             -- as in servers, or 'gone'
    base_w DOUBLE NOT NULL,
    off_w DOUBLE NOT NULL,
    switch_cost_j DOUBLE NOT NULL,
    gpus INTEGER NOT NULL,
    foreign_gpus INTEGER[] NOT NULL,
    PRIMARY KEY (server_id, since)
);

-- One row for each job and moment from which another throughput was promised to it.
CREATE TABLE job_promises (
    job_id VARCHAR NOT NULL,
    since TIMESTAMPTZ NOT NULL,
    required_throughput DOUBLE NOT NULL,
    PRIMARY KEY (job_id, since)
);

-- One row for each window that was measured; rows that come late measure it again.
CREATE TABLE measured_windows (
    window_start TIMESTAMPTZ PRIMARY KEY,
    window_end TIMESTAMPTZ NOT NULL,
    measured_until TIMESTAMPTZ NOT NULL, -- before window_end: the window was not over
    gpu_energy_j DOUBLE NOT NULL,
    server_energy_j DOUBLE NOT NULL,     -- of the servers themselves, without their GPUs
    covered DOUBLE NOT NULL,             -- share of the GPU-seconds of servers that were on with samples
    promised_s DOUBLE NOT NULL,          -- job-seconds with a promise, waiting included
    kept_s DOUBLE NOT NULL,
    unknown_s DOUBLE NOT NULL,           -- of running jobs that did not report
    measured_at TIMESTAMPTZ NOT NULL
);

-- One row for each job and window in which something was promised to it.
CREATE TABLE job_windows (
    window_start TIMESTAMPTZ NOT NULL,
    job_id VARCHAR NOT NULL,
    required_throughput DOUBLE NOT NULL, -- mean over the promised seconds
    throughput DOUBLE,                   -- mean over those that are known; 0 while it waits
    promised_s DOUBLE NOT NULL,
    kept_s DOUBLE NOT NULL,
    unknown_s DOUBLE NOT NULL,
    PRIMARY KEY (window_start, job_id)
);

-- The servers' own draw is in server_states now, for every moment and not only for the plan's.
ALTER TABLE bases DROP COLUMN base_w;
