-- One row for each of the newest network versions, newest first.
SELECT network, version, created_at, promoted_at, reason
FROM model_versions
ORDER BY created_at DESC, version
LIMIT $rows;
