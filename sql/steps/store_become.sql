-- A restored database owns the folder of samples that is there.
UPDATE store_identity SET store_id = $store_id;
