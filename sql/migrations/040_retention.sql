-- What rows that were dropped as too old had counted, so that totals never go back. One row for each
-- table and label: the state of cycles; the kind of source and the fate of rows of the ledger.
CREATE TABLE dropped_totals (
    table_name VARCHAR NOT NULL,
    label VARCHAR NOT NULL,
    fate VARCHAR NOT NULL,
    total BIGINT NOT NULL,
    PRIMARY KEY (table_name, label, fate)
);
