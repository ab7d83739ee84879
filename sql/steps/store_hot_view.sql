-- The view of a table of which nothing is in Parquet yet.
CREATE OR REPLACE VIEW {view} AS SELECT * FROM {table};
