-- For the benchmark: the samples that were generated, as Arrow rows to be written again.
SELECT * FROM gpu_samples;
