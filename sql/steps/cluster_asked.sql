-- Questions that were not answered and have time left, about the newest plan first.
SELECT plan_id, cycle_id, asks AS why, asked_at, run_id
FROM questions
WHERE decision = 'asked' AND ($since IS NULL OR asked_at >= $since)
ORDER BY window_start DESC, revision DESC, asked_at DESC;
