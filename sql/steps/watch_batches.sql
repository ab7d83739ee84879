-- One row for each source and table: what the contracts said of its newest batch.
SELECT source, table_name, status, rows_in, rows_clean, rows_quarantined, rows_duplicate, rows_late,
       detail, ingested_at
FROM ingest_batches
QUALIFY row_number() OVER (PARTITION BY source, table_name ORDER BY ingested_at DESC, batch_id) = 1
ORDER BY ingested_at DESC, source, table_name
LIMIT $rows;
