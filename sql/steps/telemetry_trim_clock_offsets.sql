-- Older offsets than the last ones of each server are of no use.
DELETE FROM clock_offsets
WHERE rowid IN (
    SELECT rowid FROM clock_offsets
    QUALIFY row_number() OVER (PARTITION BY server_id ORDER BY received_at DESC) > $keep
);
