-- Clean job records of the registered batch in the place of older ones.
INSERT OR REPLACE INTO jobs BY NAME
SELECT
    c.* EXCLUDE (row_id, part, line, parse_error, raw, is_copy, slots_known, overfull, place_missing, submitted_ahead_s),
    $now AS seen_at
FROM checked AS c
ANTI JOIN temp.split AS s ON s.row_id = c.row_id;
