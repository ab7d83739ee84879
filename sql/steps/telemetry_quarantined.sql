-- Whole rows of the quarantine by id or the beginning of one, and those a source still has there.
SELECT *
FROM quarantine
WHERE len(list_filter($ids, lambda wanted: len(wanted) >= 6 AND starts_with(quarantine_id, wanted))) > 0
    OR (source = $source AND status = 'held')
ORDER BY quarantined_at, source, line
