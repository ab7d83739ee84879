-- What came of a cycle; written once, by the run that planned it.
INSERT OR IGNORE INTO cycle_results
    (cycle_id, plan_id, running, waiting, power_w, saved_w, reference_w, moves, stops,
     estimate_error, data_age_s, notes)
VALUES ($cycle_id, $plan_id, $running, $waiting, $power_w, $saved_w, $reference_w, $moves, $stops,
        $estimate_error, $data_age_s, $notes);
