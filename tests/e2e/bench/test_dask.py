"""The same runs as Prefect tasks on Dask: a real scheduler and two workers on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.testing.utilities import prefect_test_harness

from gogh_core.bench.loop import many
from gogh_core.bench.loop.runs import Asked, run_asked
from gogh_core.errors import InvalidInput

pytestmark = pytest.mark.e2e

FEW = [Asked("embedded", policy, seed, 2) for policy in ("fcfs", "best_fit") for seed in (300, 301)]


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    with prefect_test_harness(server_startup_timeout=120):
        yield


def told(found: dict[str, Any]) -> dict[str, Any]:
    """A result without what it took."""
    return {name: value for name, value in found.items() if name != "cpu_s"}


@pytest.mark.usefixtures("server")
def test_two_dask_workers_find_what_one_process_finds(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    first = many.on_dask(FEW[:3], tmp_path, workers=2, report=seen.append)
    assert [told(raw) for raw in first] == [told(run_asked(one)) for one in FEW[:3]]
    assert len(seen) == 3
    assert len(list(tmp_path.rglob("*.json"))) == 3
    # Resumed: only what is missing is run, which the CPU seconds of the others show.
    assert many.on_dask(FEW, tmp_path, workers=2)[:3] == first
    assert len(list(tmp_path.rglob("*.json"))) == 4


@pytest.mark.usefixtures("server")
def test_what_fails_on_a_worker_is_one_line_here(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="case 'mars' is not known"):
        many.on_dask([Asked("mars", "fcfs", 1, 1)], tmp_path, workers=1)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.usefixtures("server")
def test_results_of_other_code_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "code_mark", lambda: "other")
    with pytest.raises(InvalidInput, match="runs other code"):
        many.on_dask(FEW[:1], tmp_path, workers=1)
    assert not list(tmp_path.rglob("*.json"))


def test_the_command_brings_an_api_of_its_own_and_ends_it(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-c", "from gogh_core.cli import main; main()", "bench", "loop",
         "--policies", "fcfs,best_fit", "--seeds", "300-301", "--windows", "1", "--workers", "2",
         "--dask", "local", "--keep", str(tmp_path / "kept"), "--json"],
        env={**clean, "PREFECT_HOME": str(tmp_path / "prefect")},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count('"figures"') == 4
    assert "4/4 embedded" in done.stderr
    assert not list((tmp_path / "prefect").rglob("*.db"))
    assert len(list((tmp_path / "kept").rglob("*.json"))) == 4


def test_workers_elsewhere_need_an_api_that_they_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with (
        temporary_settings({PREFECT_API_URL: None}),
        pytest.raises(InvalidInput, match="set PREFECT_API_URL"),
    ):
        many.on_dask(FEW[:1], tmp_path, workers=1, address="tcp://192.0.2.1:8786")
