-- Hot rows and, for each set of columns, the Parquet files that count.
CREATE OR REPLACE VIEW {view} AS (SELECT * FROM {table}) {parquet};
