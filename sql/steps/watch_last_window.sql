-- The newest window that is over and was measured.
SELECT window_start, measured_w, kept, covered FROM windows WHERE over ORDER BY window_start DESC LIMIT 1;
