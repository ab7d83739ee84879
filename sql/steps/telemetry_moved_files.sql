-- Files that somebody else took further than the registered `expected` says.
SELECT e.path
FROM expected AS e
LEFT JOIN spool_files AS f ON f.path = e.path
WHERE coalesce(f.position, -1) <> e.position OR coalesce(f.head_sha256, '') <> e.head_sha256
