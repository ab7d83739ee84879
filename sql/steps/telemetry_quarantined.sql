-- Whole rows of the quarantine by id or the beginning of one.
SELECT *
FROM quarantine
WHERE len(list_filter($ids, lambda wanted: len(wanted) >= 6 AND starts_with(quarantine_id, wanted))) > 0
ORDER BY quarantined_at, source, line
