-- Moves and what they gained. One row for each move: throughput and joules per step before and after.
-- parameter moves BIGINT 100
SELECT
    created_at, job_id, gpu_type_before, gpu_type_after,
    round(throughput_before, 3) AS throughput_before,
    round(throughput_after, 3) AS throughput_after,
    round(joules_per_step_before, 2) AS joules_per_step_before,
    round(joules_per_step_after, 2) AS joules_per_step_after,
    round(1 - joules_per_step_after / joules_per_step_before, 3) AS energy_saved_share,
    reason
FROM move_results
ORDER BY window_start DESC, revision DESC, job_id
LIMIT $moves;
