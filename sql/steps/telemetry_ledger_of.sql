-- The ledger's batches of one source, oldest first.
SELECT * FROM ingest_batches WHERE source = $source ORDER BY ingested_at, range_from
