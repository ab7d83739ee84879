-- Sharing pairs and their interference. One row for each pair of classes and GPU type; kept_share is
-- what is left of the throughput the job has alone.
SELECT
    job_class, partner_class, gpu_type, gpus, observations,
    round(throughput, 3) AS throughput, round(throughput_alone, 3) AS throughput_alone,
    round(kept_share, 3) AS kept_share, round(power_w, 1) AS power_w
FROM sharing_pairs
ORDER BY kept_share NULLS LAST, job_class, partner_class, gpu_type;
