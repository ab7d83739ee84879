-- One row for each sample of a GPU that has a power reading, hot or in Parquet, with its type.
CREATE OR REPLACE VIEW stg_gpu_samples AS
SELECT
    samples.ts,
    samples.server_id,
    samples.gpu_index,
    coalesce(samples.gpu_type, gpus.gpu_type, 'unknown') AS gpu_type,
    samples.power_w,
    samples.utilisation,
    samples.memory_used_mb,
    samples.temperature_c
FROM gpu_samples_all AS samples
LEFT JOIN gpus USING (server_id, gpu_index)
WHERE samples.power_w IS NOT NULL;
