-- What came of a cycle.
INSERT OR REPLACE INTO cycle_results
    (cycle_id, plan_id, running, waiting, power_w, saved_w, moves, stops, estimate_error, data_age_s,
     notes)
VALUES ($cycle_id, $plan_id, $running, $waiting, $power_w, $saved_w, $moves, $stops,
        $estimate_error, $data_age_s, $notes);
