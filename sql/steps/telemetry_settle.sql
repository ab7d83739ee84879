-- Rows of the quarantine that were readmitted.
UPDATE quarantine SET status = 'readmitted', settled_at = $now WHERE list_contains($ids, quarantine_id);
