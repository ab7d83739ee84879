-- Held rows of the quarantine are settled without being used.
UPDATE quarantine SET status = 'dropped', settled_at = $now
WHERE status = 'held' AND len(list_filter($ids, lambda wanted: len(wanted) >= 6 AND starts_with(quarantine_id, wanted))) > 0
RETURNING quarantine_id
