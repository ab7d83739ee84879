-- The views people made or we made; all are made anew.
SELECT view_name FROM duckdb_views() WHERE NOT internal AND NOT temporary;
