-- From here on the file counts.
INSERT INTO sample_files
SELECT
    $file, $table, $range_from, $range_to, $span, $rows, $bytes,
    (SELECT string_agg(column_name, ',' ORDER BY column_index) FROM duckdb_columns()
     WHERE table_name = $table AND schema_name = 'main'),
    $created_at, NULL, NULL;
