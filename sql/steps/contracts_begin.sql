-- Before a batch is checked: nothing of an earlier one on this connection.
DROP TABLE IF EXISTS temp.checked;
