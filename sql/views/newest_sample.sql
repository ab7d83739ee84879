-- One row: the time of the newest sample; what "now" means for telemetry.
CREATE OR REPLACE VIEW newest_sample AS
SELECT max(ts) AS ts FROM gpu_samples_all;
