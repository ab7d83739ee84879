-- When a file was hidden because it is older than the retention, in seconds by the store's steady
-- clock (see the fact 'ageing'); NULL where it was not. Such a file comes back when a later ageing
-- finds that it is not too old after all.
ALTER TABLE sample_files ADD COLUMN expired_s DOUBLE;
