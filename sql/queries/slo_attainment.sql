-- SLO attainment. One row for each owner and kind of job: the share of time promises were kept.
-- parameter hours DOUBLE 24
SELECT
    coalesce(nullif(owner, ''), '(nobody)') AS owner,
    kind,
    count(DISTINCT job_id) AS jobs,
    round(sum(kept_s) / nullif(sum(promised_s), 0), 4) AS attainment,
    round(min(throughput / required_throughput), 3) AS worst
FROM slo_windows
WHERE window_start >= (SELECT max(window_start) FROM slo_windows) - to_seconds($hours * 3600)
GROUP BY ALL
ORDER BY attainment, owner, kind;
