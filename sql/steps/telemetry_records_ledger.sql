-- One row of the ledger for each table of records; the same state twice is the same row.
INSERT OR REPLACE INTO ingest_batches
VALUES (
    $batch_id, 'records', $table, $at, $at, $batch_id,
    $rows_in, $rows_clean, $rows_quarantined, $rows_duplicate, $rows_late, $status, $detail, $now
);
