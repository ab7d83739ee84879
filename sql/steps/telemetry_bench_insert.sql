-- The bare insert of a registered CSV file of samples: no checks, no ledger, committed.
CREATE TABLE bare_samples AS
SELECT * FROM read_csv($path, columns = {
    'ts': 'TIMESTAMPTZ', 'server_id': 'VARCHAR', 'gpu_index': 'INTEGER', 'gpu_type': 'VARCHAR', 'power_w': 'DOUBLE',
    'energy_j': 'DOUBLE', 'utilisation': 'DOUBLE', 'memory_used_mb': 'DOUBLE', 'temperature_c': 'DOUBLE',
    'sm_clock_mhz': 'DOUBLE', 'throttle_reasons': 'BIGINT', 'processes': 'INTEGER'
}, header = true);
CHECKPOINT;
