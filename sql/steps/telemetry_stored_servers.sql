-- Records of servers, as last seen since a moment.
SELECT * EXCLUDE (seen_at) FROM servers WHERE seen_at >= $since LIMIT $limit
