-- Where a source that is asked by time goes on.
SELECT ts FROM watermarks WHERE source = $source
