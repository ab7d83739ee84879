-- Observations of the registered batch replace older ones: none is known, none is late.
SELECT c.row_id, false AS known, false AND $late_s > 0 AS late FROM checked AS c
WHERE known OR late
