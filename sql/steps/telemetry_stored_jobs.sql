-- Records of jobs, as last seen since a moment.
SELECT * EXCLUDE (seen_at) FROM jobs WHERE seen_at >= $since LIMIT $limit
