# Every target sets itself up on a fresh machine and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DO_NOT_TRACK := 1
export PYTHONUNBUFFERED := 1
# `require`: set-up ends where a file does not have the hash in constraints-hashes.txt.
HASHES ?=
JOBS := $(shell nproc 2>/dev/null || echo 2)

.PHONY: setup run test check e2e soak clean

setup: $(STAMP)
	@sh .ci/glpk

$(STAMP): pyproject.toml constraints.txt constraints-hashes.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@HASHES=$(HASHES) sh .ci/hashed $(BIN)/python constraints-hashes.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[postgres,dask,dev]'
	@touch $(STAMP)

run: setup
	@$(BIN)/gogh demo

test: setup
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy gogh_core flows
	$(BIN)/lint-imports
	$(BIN)/python -m gogh_core.store.parse_sql

e2e: setup
	@sh .ci/e2e-packages
	GOGH_E2E=1 $(BIN)/python -m pytest -m e2e || \
		{ echo "gogh: what failed is tried once more, alone: twice is a fault"; \
		GOGH_E2E=1 $(BIN)/python -m pytest -m e2e --last-failed --last-failed-no-failures none; }

soak: setup
	@sh .ci/e2e-packages
	GOGH_E2E=1 $(BIN)/python -m pytest -m soak

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis
