-- Records of gpus, as last seen since a moment.
SELECT * EXCLUDE (seen_at, uuid) FROM gpus WHERE seen_at >= $since LIMIT $limit
