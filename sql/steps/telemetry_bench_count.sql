-- How many samples there are.
SELECT count(*) AS rows FROM gpu_samples
