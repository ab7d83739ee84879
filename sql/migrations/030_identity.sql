-- One row: the id by which this database owns its folder of samples, and how many transactions were
-- committed to it. The count is also kept beside the database, so that a lost commit is noticed.
CREATE TABLE store_identity (store_id VARCHAR NOT NULL, commits BIGINT NOT NULL);
INSERT INTO store_identity SELECT replace(uuid()::VARCHAR, '-', ''), 0;
