-- The transaction that runs this is one more.
UPDATE store_identity SET commits = commits + 1;
SELECT store_id, commits FROM store_identity;
