"""A cluster that was killed goes on as if nothing had happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[3]


def _runs(
    folder: Path, mode: str, count: int, seed: int, **environment: str
) -> list[dict[str, Any]]:
    words = [sys.executable, "-m", "tests.e2e.simulation.killing", str(folder), mode]
    done = subprocess.run(
        [*words, str(count), str(seed)],
        cwd=PROJECT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def _all_as_calm(runs: list[dict[str, Any]]) -> None:
    calm = runs[0]["digest"]
    assert any(name.startswith("spool/gpu/") for name in calm)
    assert any(name.startswith("spool/events/") for name in calm)
    for run in runs[1:]:
        print(run["run"], "killed at:", "; ".join(run["points"]))
        names = calm.keys() | run["digest"].keys()
        differ = sorted(name for name in names if calm.get(name) != run["digest"].get(name))
        assert not differ, f"{run['run']} (killed at {run['points']}) ended differently in {differ}"


@pytest.mark.e2e
def test_killed_at_each_point_once_it_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    runs = _runs(tmp_path, "each", 0, 0)
    assert len(runs) == len(runs[0]["points"]) + 1 > 50
    _all_as_calm(runs)


@pytest.mark.e2e
def test_killed_at_random_points_it_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    runs = _runs(tmp_path, "random", 20, 1)
    assert sum(len(run["points"]) for run in runs[1:]) >= 20
    _all_as_calm(runs)


@pytest.mark.e2e
def test_killed_by_the_clock_it_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    _all_as_calm(_runs(tmp_path, "clock", 5, 2))


@pytest.mark.e2e
def test_the_order_of_hashes_does_not_matter(tmp_path: Path) -> None:
    digests = []
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        digests.append(_runs(tmp_path / seed, "clock", 0, 0, PYTHONHASHSEED=seed)[0]["digest"])
    assert digests[0] == digests[1]


@pytest.mark.e2e
def test_two_processes_run_one_cluster_and_every_sample_is_there_once(tmp_path: Path) -> None:
    (found,) = _runs(tmp_path, "together", 15, 0)
    gpus = 8 + 8 + 4  # of the three servers, all on
    assert found == {"gone_s": 300.0, "rows": 30 * gpus, "most": 1}


@pytest.mark.soak
def test_killed_hundreds_of_times_it_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    runs = _runs(tmp_path, "random", 200, 3)
    assert sum(len(run["points"]) for run in runs[1:]) >= 300
    _all_as_calm(runs)
