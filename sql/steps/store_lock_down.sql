-- For people: nothing but the snapshot and the Parquet samples can be read, what does not fit in
-- memory goes to one folder up to a limit, and that stays so. The limit of the folder holds only
-- when it is set here: given when connecting, DuckDB 2.0 shows it and does not keep it.
SET temp_directory = $spill;
SET max_temp_directory_size = $spill_limit;
SET allowed_directories = [$samples];
SET enable_external_access = false;
SET lock_configuration = true;
