-- The view of a table with its rows in Parquet; the manifest says which files count.
CREATE OR REPLACE VIEW {view} AS
SELECT * FROM {table}
UNION ALL BY NAME
SELECT * FROM read_parquet([{files}], hive_partitioning = false);
