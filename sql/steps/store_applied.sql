-- The migrations that were applied, in order.
SELECT number, name, checksum FROM schema_migrations ORDER BY number;
