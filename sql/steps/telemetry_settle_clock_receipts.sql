-- What the batches showed has become offsets.
DELETE FROM clock_receipts
