-- Batches of the ledger among the registered `parts`.
SELECT b.batch_id FROM ingest_batches AS b SEMI JOIN parts AS p ON starts_with(b.batch_id, p.batch_id)
