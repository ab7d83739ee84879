-- Tables of which rows wait whose time has come.
SELECT DISTINCT table_name FROM late_rows WHERE early AND ts <= $until
