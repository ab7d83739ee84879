-- Held rows of the quarantine that were readmitted or dropped; nothing is deleted.
UPDATE quarantine SET status = $status, settled_at = $now
WHERE status = 'held' AND quarantine_id IN (SELECT unnest($ids))
