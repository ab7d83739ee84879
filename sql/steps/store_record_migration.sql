INSERT INTO schema_migrations VALUES ($number, $name, $checksum, $applied_at);
