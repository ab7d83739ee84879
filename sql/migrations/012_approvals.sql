-- One row for each run of the UI that shows a form for the question about a plan.
CREATE TABLE approval_forms (
    plan_id VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    ts TIMESTAMPTZ NOT NULL
);
