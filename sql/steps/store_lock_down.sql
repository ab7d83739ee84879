-- For people: nothing but the snapshot and the Parquet samples can be read, and that stays so.
SET allowed_directories = [$samples];
SET enable_external_access = false;
SET lock_configuration = true;
