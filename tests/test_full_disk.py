"""A full disk stops ingest, plan files, models and commands with one clear line; then they go on.

What the store itself does is in tests/store/test_full_disk.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gogh_core.allocation import greedy, load_problem
from gogh_core.cluster.files import FilesManager
from gogh_core.errors import StoreError
from gogh_core.estimation import Registry, Version, load_estimator
from gogh_core.estimation.networks import build
from gogh_core.planning.files import keep_files
from gogh_core.settings import load
from gogh_core.store import Store
from gogh_core.telemetry import ingest
from tests.allocation.test_cases import CASES
from tests.cluster.fake import at as slot
from tests.cluster.fake import plan
from tests.store.small_disk import SmallDisk, small_disk
from tests.telemetry.world import at, csv, opened, put, rows_of, sample, state_of

_LEAVES = [0, 8192, 65_536, 400_000]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 64) as disk:
        yield disk


def refused(disk: SmallDisk, work: Callable[[], object], leave: int = 0) -> str:
    """What was said on a full disk: one line; no file has come."""
    disk.fill(leave=leave)
    before = set(disk.folder.rglob("*"))
    try:
        with pytest.raises(StoreError) as told:
            work()
        half = {p for p in set(disk.folder.rglob("*")) - before if p.is_file()}
        assert half == set()
    finally:
        disk.make_room()
    assert "\n" not in str(told.value)
    assert "the disk is full" in str(told.value)
    return str(told.value)


@pytest.mark.parametrize("leave", _LEAVES)
def test_every_row_is_taken_in_when_there_is_room_again(disk: SmallDisk, leave: int) -> None:
    state = state_of([("s1", "v100", 8)])
    settings, store = opened(disk.folder / "home", state)
    lines = [sample(t, gpu=gpu, power=100 + gpu) for t in range(600) for gpu in range(8)]
    for number in range(4):
        put(settings, f"gpu/s1-{number}.csv", csv(lines[number::4]))
    now = at(900)
    disk.fill(leave=leave)
    said = ""
    try:
        report = ingest(store, settings, now=now, state=state)
        said = "; ".join(report.faults)
    except StoreError as error:
        said = str(error)
    finally:
        disk.make_room()
    assert "\n" not in said
    assert "the disk is full" in said or leave
    ingest(store, settings, now=now, state=state)
    counted = "SELECT count(*), count(DISTINCT (ts, gpu_index)) FROM gpu_samples"
    assert rows_of(store, counted) == [(4800, 4800)]
    assert rows_of(store, "SELECT count(*) FROM quarantine") == [(0,)]
    assert rows_of(store, "SELECT count(*) FROM ingest_batches WHERE status = 'refused'") == [(0,)]


def test_a_plan_file_appears_when_there_is_room_again(disk: SmallDisk) -> None:
    settings = load(home=disk.folder / "home", cluster={"manager": "files"})
    settings.plans.mkdir(parents=True)
    wanted = plan("p1", places={"b": slot("s1", 1)})
    manager = FilesManager(settings)
    refused(disk, lambda: manager.deliver(wanted, key="k"))
    manager.deliver(wanted, key="k")
    assert [path.name for path in settings.plans.iterdir()] == ["p1.json"]


def test_problem_files_appear_when_there_is_room_again(disk: SmallDisk) -> None:
    settings = load(home=disk.folder / "home")
    settings.home.mkdir()
    problem = load_problem(CASES[0])
    made = greedy(problem)
    for leave in (0, 4096):
        refused(disk, lambda: keep_files(settings, problem, made, name="p1"), leave)
        assert not list((settings.home / "problems").glob("*"))
    assert (keep_files(settings, problem, made, name="p1") / "plan.json").exists()


def test_a_version_is_kept_and_promoted_when_there_is_room_again(disk: SmallDisk) -> None:
    registry = Registry(disk.folder / "models")
    networks = {stage: build("feed-forward") for stage in ("P1", "P2")}
    version = Version(id="one", kind="feed-forward", created_at="", data_sha256="")
    for leave in (0, 4096, 40_000):
        refused(disk, lambda: registry.add(networks, version), leave)
        assert registry.versions() == []
    registry.add(networks, version)
    refused(disk, lambda: registry.promote("one", at=at(0)))
    assert registry.serving == "shipped"
    registry.promote("one", at=at(0))
    assert load_estimator(registry.folder).version == "one"


def test_a_command_says_it_in_one_line(disk: SmallDisk) -> None:
    home = disk.folder / "home"
    store = Store(load(home=home))
    store.migrate()
    gogh = [sys.executable, "-m", "gogh_core.cli"]
    environment = {**os.environ, "GOGH_HOME": str(home)}
    for words in (["snapshot"], ["backup", str(disk.folder / "backup")]):
        disk.fill()
        done = subprocess.run(
            [*gogh, *words], env=environment, capture_output=True, text=True, check=False
        )
        disk.make_room()
        assert done.returncode == 1, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert "the disk is full" in done.stderr
    assert {p.name for p in disk.folder.iterdir()} == {"home"}
