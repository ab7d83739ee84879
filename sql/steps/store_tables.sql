-- The tables of the database, whoever made them.
SELECT table_name FROM duckdb_tables() WHERE NOT internal AND NOT temporary;
