-- What migrations are recorded in, and the few things the store remembers of itself.
CREATE TABLE IF NOT EXISTS schema_migrations (
    number INTEGER PRIMARY KEY,
    name VARCHAR NOT NULL,
    checksum VARCHAR NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL
);
CREATE TABLE IF NOT EXISTS store_facts (name VARCHAR PRIMARY KEY, value VARCHAR NOT NULL);
