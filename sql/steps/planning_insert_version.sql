-- A version of a network that a cycle trained, promoted or not.
INSERT OR IGNORE INTO model_versions
    (version, network, created_at, promoted_at, scores, reason)
VALUES ($version, 'P2', $created_at, $promoted_at, $scores, $reason);
