-- A table that needs no helper columns: the registered `batch` as it is.
SELECT * FROM batch
