-- One row for each GPU and span of `span_s` with samples that say something of the time between `since`
-- and `until`: mean power and utilisation, and from when to when the samples speak. A sample speaks for
-- the time since the one before it; after more than a minute of silence (the server was off) only for
-- as long as samples are apart. Spans are counted from midnight UTC; a sample at a span's very start
-- belongs to the span before. The samples are put together by span first: power from one sample to the
-- next takes ten times as long.
CREATE OR REPLACE MACRO gpu_spans(span_s, since, until) AS TABLE
WITH sampled AS (
    SELECT
        server_id,
        gpu_index,
        (epoch_us(ts) - 1) // (span_s * 1000000) * span_s AS began_s,
        any_value(gpu_type) AS gpu_type,
        count(*) AS samples,
        avg(power_w) AS power_w,
        avg(utilisation) AS utilisation,
        min(epoch_us(ts)) / 1e6 AS first_s,
        max(epoch_us(ts)) / 1e6 AS last_s
    FROM stg_gpu_samples
    WHERE ts > since - INTERVAL 1 MINUTE AND ts <= until + INTERVAL 1 MINUTE
    GROUP BY ALL
),
beside AS (
    SELECT *, lag(last_s) OVER gpu AS before_s, lead(first_s) OVER gpu AS after_s
    FROM sampled
    WINDOW gpu AS (PARTITION BY server_id, gpu_index ORDER BY began_s)
),
reaching AS (
    SELECT
        *,
        CASE
            WHEN first_s - before_s <= 60 THEN before_s
            WHEN samples > 1 THEN first_s - (last_s - first_s) / (samples - 1)
            ELSE first_s - least(coalesce(after_s - last_s, 0), 60)
        END AS from_s
    FROM beside
),
final AS (
    SELECT
        server_id,
        gpu_index,
        gpu_type,
        to_timestamp(began_s) AS began_at,
        to_timestamp(from_s) AS from_ts,
        to_timestamp(last_s) AS to_ts,
        samples,
        power_w,
        utilisation
    FROM reaching
)
SELECT * FROM final WHERE to_ts > since AND from_ts < until;
