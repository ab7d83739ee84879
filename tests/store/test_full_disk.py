"""A full disk: one clear line, nothing half written, and it goes on when there is room."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gogh_core.errors import StoreError
from gogh_core.settings import load
from gogh_core.store import Store, ask
from tests.store.small_disk import SmallDisk, small_disk
from tests.store.test_ageing import NOON, powers, samples
from tests.store.test_store import count, events


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 48) as disk:
        yield disk


@pytest.fixture
def store(disk: SmallDisk, migrated: Path) -> Store:
    store = Store(load(home=disk.folder / "home"))
    store.path.parent.mkdir()
    shutil.copyfile(migrated, store.path)
    store.append("gpu_samples", samples(NOON - timedelta(hours=30), 30, period_s=60))
    store.append("job_events", events(5))
    store.publish()
    return store


def refused(
    disk: SmallDisk, work: Callable[[], object], leave: int, *, whole: tuple[str, ...] = ()
) -> bool:
    """Whether it was refused on a full disk, in one line; nothing half written is left behind.

    Names that end as `whole` says are those of files that may come, complete.
    """
    disk.fill(leave=leave)
    before = names(disk)
    try:
        work()
    except StoreError as error:
        told = str(error)
        assert "\n" not in told
        assert "the disk is full" in told
        assert "make room" in told
        assert {name for name in names(disk) - before if not name.endswith(whole)} == set()
        return True
    finally:
        disk.make_room()
    return False


def names(disk: SmallDisk) -> set[str]:
    """All files but locks and DuckDB's log, which holds what was committed."""
    found = {str(p.relative_to(disk.folder)) for p in disk.folder.rglob("*") if p.is_file()}
    passing = (".filler", ".commits", ".open", ".age", ".lock", "gogh.duckdb.wal")
    return {name for name in found if not name.endswith(passing)}


_LEAVES = [0, 4096, 65_536, 300_000, 600_000, 1_200_000]


@pytest.mark.parametrize("leave", _LEAVES)
def test_writing(disk: SmallDisk, store: Store, leave: int) -> None:
    more = samples(NOON, 200, period_s=10)
    was_refused = refused(disk, lambda: store.append("gpu_samples", more), leave)
    assert was_refused or leave > 65_536
    if was_refused:
        assert len(powers(store, "gpu_samples")) == 3600
        store.append("gpu_samples", more)
    assert len(powers(store, "gpu_samples")) == 3600 + more.num_rows
    assert count(store) == 5


@pytest.mark.parametrize("leave", _LEAVES)
def test_publishing(disk: SmallDisk, store: Store, leave: int) -> None:
    store.append("job_events", events(3))
    assert refused(disk, store.publish, leave)
    assert ask(store, "SELECT count(*) AS n FROM job_events")["n"][0].as_py() == 5
    store.publish()
    assert ask(store, "SELECT count(*) AS n FROM job_events")["n"][0].as_py() == 8


@pytest.mark.parametrize("leave", _LEAVES)
def test_ageing(disk: SmallDisk, store: Store, leave: int) -> None:
    refused(disk, lambda: store.age(NOON), leave, whole=(".parquet", "owner.json"))
    assert len(powers(store)) == 3600
    assert not [name for name in names(disk) if name.endswith(".part")]
    store.age(NOON)
    assert len(powers(store)) == 3600
    assert len(powers(store, "gpu_samples")) < 3600
    with store.read() as connection:
        named = {row[0] for row in connection.sql("SELECT file FROM sample_files").fetchall()}
    store.age(NOON)
    there = {str(p.relative_to(store.samples)) for p in store.samples.rglob("*.parquet")}
    assert there <= named


@pytest.mark.parametrize("leave", _LEAVES)
def test_a_backup(disk: SmallDisk, store: Store, leave: int) -> None:
    store.age(NOON)
    folder = disk.folder / "backup"
    assert refused(disk, lambda: store.backup(folder), leave)
    assert not folder.exists()
    assert not folder.with_name("backup.part").exists()
    store.restore(store.backup(folder))
    assert len(powers(store)) == 3600


@pytest.mark.parametrize("leave", _LEAVES)
def test_a_restore(disk: SmallDisk, store: Store, tmp_path: Path, leave: int) -> None:
    store.age(NOON)
    folder = store.backup(tmp_path / "backup")
    store.append("job_events", events(2))
    assert refused(disk, lambda: store.restore(folder), leave)
    assert count(store) == 7
    store.restore(folder)
    assert count(store) == 5


@pytest.mark.parametrize("leave", _LEAVES)
def test_a_new_store(disk: SmallDisk, leave: int) -> None:
    store = Store(load(home=disk.folder / "fresh"))
    refused(disk, store.migrate, leave)
    assert not list(disk.folder.rglob("*.create*"))
    store.migrate()
    assert store.append("job_events", events(1)) == 1
