-- The watermark of a source never goes back.
INSERT INTO watermarks VALUES ($source, $ts, $now)
ON CONFLICT DO UPDATE SET ts = greatest(ts, excluded.ts), updated_at = excluded.updated_at;
