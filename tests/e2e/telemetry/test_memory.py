"""A file of any length is read in bounded memory: four times the rows hardly move the peak."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

ROWS = 100_000
CACHE_MB = 128
# Batches a tenth of the usual size: a file of many batches is quickly read.
INGEST = """
import json, sys
from pathlib import Path

import gogh_core.telemetry
from gogh_core.bench.ingest import measure

sys.modules["gogh_core.telemetry.ingest"].CHUNK_ROWS = 30_000
sys.modules["gogh_core.telemetry.ingest"].BLOCK_BYTES = 1 << 20
home, rows = Path(sys.argv[1]), int(sys.argv[2])
measure(home / "warm", 30_000)
found = [measure(home / str(size), size, gpus=40) for size in (rows, 4 * rows)]
print(json.dumps([{"rows": one["rows"], "grown_mb": one["grown_mb"]} for one in found]))
"""
# The real helper query; few expectations are enough here, and quick.
SUITE = {
    "name": "gpu_samples",
    "expectations": [
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "energy_step_j", "min_value": -0.001},
            "meta": {"level": "refuse", "says": "the energy counter never runs backwards"},
        }
    ],
}


@pytest.mark.e2e
def test_four_times_the_rows_need_hardly_more_memory(tmp_path: Path) -> None:
    (tmp_path / "gpu_samples.json").write_text(json.dumps(SUITE))
    environment = {
        **os.environ,
        "GOGH_CONTRACTS__DIRECTORY": str(tmp_path),
        "GOGH_STORE__MEMORY_LIMIT_MB": str(CACHE_MB),
    }
    done = subprocess.run(
        [sys.executable, "-c", INGEST, str(tmp_path / "homes"), str(ROWS)],
        env=environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    print(done.stdout)
    once, four_times = json.loads(done.stdout)
    assert four_times["rows"] > 3.9 * once["rows"]
    # What may grow is DuckDB's cache, up to its limit; 300,000 rows more would take 300 MB.
    assert four_times["grown_mb"] < 1.2 * once["grown_mb"] + CACHE_MB
