-- Every file of the spool that was seen, and how far it has been taken in.
SELECT path, head_sha256, head_bytes, position, lines, size, mtime_ns, header, anchor, skew_s, status, detail,
       epoch(updated_at) AS updated_s
FROM spool_files
