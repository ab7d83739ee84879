-- The last offsets of each server's clock, newest first.
SELECT server_id, offset_s
FROM clock_offsets
QUALIFY row_number() OVER (PARTITION BY server_id ORDER BY received_at DESC) <= $receipts
