-- What each expectation said of a batch (registered as `contract_results`).
INSERT INTO contract_runs BY NAME SELECT *, $now AS run_at FROM contract_results;
