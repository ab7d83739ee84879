-- Whether rows of the registered batch may be in Parquet already.
SELECT count(*) > 0 AS found
FROM sample_files
WHERE table_name = $table AND range_to > (SELECT min(ts) FROM checked) AND retired_at IS NULL
