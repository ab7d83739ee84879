-- The registered `due` (late_id) rows were taken.
DELETE FROM late_rows WHERE late_id IN (SELECT late_id FROM due);
