"""A backup brings everything back, and a bad one is refused before anything is replaced."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gogh_core.errors import InvalidInput, StoreCorrupt
from gogh_core.settings import load
from gogh_core.store import Store, ask
from tests.store.test_ageing import NOON, powers, samples


@pytest.fixture
def store(store: Store) -> Store:
    store.append("gpu_samples", samples(NOON - timedelta(hours=10), 10))
    store.age(NOON)
    return store


def test_a_backup_comes_back_whole(store: Store, tmp_path: Path) -> None:
    folder = store.backup(tmp_path / "backup")
    store.append("gpu_samples", samples(NOON, 1))
    store.restore(folder)
    assert powers(store) == [float(i) for i in range(1200)]
    assert ask(store, "SELECT count(*) AS n FROM gpu_samples_all").to_pylist() == [{"n": 1200}]


def test_a_backup_can_become_another_store(store: Store, tmp_path: Path) -> None:
    folder = store.backup(tmp_path / "backup")
    other = Store(load(home=tmp_path / "elsewhere"))
    other.restore(folder)
    for path in store.samples.rglob("*.parquet"):
        path.unlink()
    assert len(powers(other)) == 1200
    other.migrate()
    assert other.age(NOON).files_removed == 0


def test_a_database_beyond_opening_is_replaced(store: Store, tmp_path: Path) -> None:
    folder = store.backup(tmp_path / "backup")
    store.path.write_bytes(b"gone")
    next(store.samples.rglob("*.parquet")).write_bytes(b"gone too")
    store.restore(folder)
    assert len(powers(store)) == 1200


@pytest.mark.parametrize("victim", ["gogh.duckdb", "samples", "backup.json"])
def test_a_damaged_backup_is_refused_and_nothing_changes(
    store: Store, tmp_path: Path, victim: str
) -> None:
    folder = store.backup(tmp_path / "backup")
    path = folder / victim
    target = next(path.rglob("*.parquet")) if path.is_dir() else path
    target.write_bytes(target.read_bytes()[:-7])
    before = store.path.read_bytes()
    with pytest.raises(StoreCorrupt, match="damaged"):
        store.restore(folder)
    assert store.path.read_bytes() == before


def test_a_folder_that_is_no_backup_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is no backup"):
        store.restore(tmp_path)


def test_a_backup_never_overwrites(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="exists already"):
        store.backup(tmp_path)
