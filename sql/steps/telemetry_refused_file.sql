-- A file that cannot be read as what it should be: in the ledger as refused, the file stays.
INSERT OR REPLACE INTO ingest_batches
VALUES ($batch_id, $source, $table, NULL, NULL, $checksum, 0, 0, 0, 0, 0, 'refused', $detail, $now);
