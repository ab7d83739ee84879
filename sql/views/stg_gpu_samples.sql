-- One row for each sample of a GPU that has a power reading, hot or in Parquet; its type where the
-- sample tells it.
CREATE OR REPLACE VIEW stg_gpu_samples AS
SELECT
    ts,
    server_id,
    gpu_index,
    gpu_type,
    power_w,
    utilisation,
    memory_used_mb,
    temperature_c
FROM gpu_samples_all
WHERE power_w IS NOT NULL;
