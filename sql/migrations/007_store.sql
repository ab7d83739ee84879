-- The manifest: one row for each Parquet file of aged samples. A file without a row here does not
-- count and is removed; a retired file is kept until no snapshot that people read names it.
CREATE TABLE sample_files (
    file VARCHAR PRIMARY KEY,     -- below the folder of samples
    table_name VARCHAR NOT NULL,
    range_from TIMESTAMPTZ NOT NULL,
    range_to TIMESTAMPTZ NOT NULL,
    span VARCHAR NOT NULL,        -- 'hour' or 'day'
    "rows" BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    columns VARCHAR NOT NULL,     -- the table's columns when it was written
    created_at TIMESTAMPTZ NOT NULL,
    retired_at DOUBLE             -- seconds since 1970 by the wall clock, as files have them
);
