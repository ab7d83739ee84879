-- Rows of the registered `early` (row_id, part, line) join the others of the batch, to be kept until their time comes.
INSERT INTO temp.split BY NAME
SELECT row_id, part, line, 'early' AS expectation, 'late' AS fate FROM early;
