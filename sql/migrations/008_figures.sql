-- What a placement is expected to give: the mean, and the interval around it.
ALTER TABLE placements ADD COLUMN expected DOUBLE;
ALTER TABLE placements ADD COLUMN expected_low DOUBLE;
ALTER TABLE placements ADD COLUMN expected_high DOUBLE;

-- What best fit by energy would draw for the same jobs; `saved_w` is told against it from now on.
-- What stood there before compared with whatever had run in the window before.
ALTER TABLE cycle_results ADD COLUMN reference_w DOUBLE;
UPDATE cycle_results SET saved_w = NULL;
