-- Arrow rows into a table, column by column name; columns that are not given take their default.
INSERT INTO {table} BY NAME SELECT * FROM store_rows;
