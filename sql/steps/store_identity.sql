-- Who this database is, and how many transactions were committed to it.
SELECT store_id, commits FROM store_identity;
