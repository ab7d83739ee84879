-- Files that are no longer in the spool.
DELETE FROM spool_files WHERE path IN (SELECT unnest($paths))
