-- Rows of the registered batch that are not clean: quarantined, duplicate or late. They are few, so whoever wants the
-- clean ones leaves these out, which costs next to nothing.
-- `failures`, `refused` and `fates` (known and late rows of this table) are registered.
DROP TABLE IF EXISTS temp.split;
CREATE TEMP TABLE split AS
WITH worst AS (
    SELECT
        row_id,
        arg_min(expectation, "rank") AS expectation,
        arg_min(column_name, "rank") AS column_name,
        arg_min(value, "rank") AS value,
        string_agg(reason, '; ' ORDER BY "rank") AS reason
    FROM failures
    GROUP BY row_id
)
SELECT
    c.row_id,
    c.part,
    c.line,
    coalesce(w.expectation, CASE WHEN r.part IS NOT NULL THEN 'batch refused' END) AS expectation,
    w.column_name,
    w.value,
    concat_ws('; ', 'refused with its batch: ' || r.reason, w.reason) AS reason,
    CASE
        WHEN r.part IS NOT NULL OR w.row_id IS NOT NULL THEN 'quarantined'
        WHEN c.is_copy OR f.known THEN 'duplicate'
        WHEN f.late THEN 'late'
    END AS fate
FROM checked AS c
LEFT JOIN fates AS f ON f.row_id = c.row_id
LEFT JOIN worst AS w ON w.row_id = c.row_id
LEFT JOIN refused AS r ON r.part = c.part
WHERE fate IS NOT NULL;
