-- One row for each job class, partner class and GPU type seen sharing: what is left of the
-- throughput it has alone there (NULL where it never ran alone).
CREATE OR REPLACE VIEW sharing_pairs AS
WITH alone AS (
    SELECT job_class, gpu_type, gpus, median(throughput) AS throughput
    FROM observations
    WHERE partner_class IS NULL
    GROUP BY ALL
),
together AS (
    SELECT
        job_class,
        partner_class,
        gpu_type,
        gpus,
        median(throughput) AS throughput,
        median(power_w) AS power_w,
        count(*) AS observations
    FROM observations
    WHERE partner_class IS NOT NULL
    GROUP BY ALL
)
SELECT
    t.*,
    a.throughput AS throughput_alone,
    t.throughput / nullif(a.throughput, 0) AS kept_share
FROM together AS t
LEFT JOIN alone AS a USING (job_class, gpu_type, gpus);
