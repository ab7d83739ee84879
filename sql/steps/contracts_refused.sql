-- Batches that were refused as a whole, newest first.
SELECT ingested_at, source, table_name, detail FROM ingest_batches
WHERE status = 'refused'
ORDER BY ingested_at DESC, source
LIMIT $limit
