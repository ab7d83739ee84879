"""A backup brings everything back, and a bad one is refused before anything is replaced."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from gogh_core.errors import InvalidInput, StoreCorrupt, StoreError
from gogh_core.settings import load
from gogh_core.store import Store, ask, files
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


def relist(folder: Path, **changes: str | None) -> None:
    """As somebody would who tampers with a backup: the list is right again for what is there."""
    path = folder / "backup.json"
    raw = json.loads(path.read_text())
    raw["files"] |= {name: files.checksum(folder / name) for name in raw["files"]}
    raw["files"] |= {name.replace("__", "/"): value for name, value in changes.items()}
    path.write_text(json.dumps(raw))


def home_of(store: Store) -> dict[str, bytes]:
    home = store.path.parent
    return {str(p.relative_to(home)): p.read_bytes() for p in home.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    "name",
    ["samples/../evil", "../evil", "/tmp/evil", "evil", "samples/gpu_samples/x.parquet", "samples"],
)
def test_a_backup_that_lists_anything_else_writes_nothing(
    store: Store, tmp_path: Path, name: str
) -> None:
    folder = store.backup(tmp_path / "backup")
    before, around = home_of(store), set(tmp_path.iterdir())
    raw = json.loads((folder / "backup.json").read_text())
    raw["files"][name] = "0" * 64
    (folder / "backup.json").write_text(json.dumps(raw))
    with pytest.raises(StoreCorrupt, match="which is no file of samples"):
        store.restore(folder)
    assert home_of(store) == before
    assert set(tmp_path.iterdir()) == around


@pytest.mark.parametrize("name", ["../../evil.parquet", "../evil", "/tmp/evil"])
def test_a_backup_whose_database_names_a_file_outside_writes_nothing(
    store: Store, tmp_path: Path, name: str
) -> None:
    folder = store.backup(tmp_path / "backup")
    before, around = home_of(store), set(tmp_path.iterdir())
    raw = duckdb.connect(str(folder / "gogh.duckdb"))
    raw.execute("UPDATE sample_files SET file = ? WHERE rowid = 0", [name])
    raw.close()
    relist(folder)
    with pytest.raises(StoreCorrupt, match="which is no file of samples"):
        store.restore(folder)
    assert home_of(store) == before
    assert set(tmp_path.iterdir()) == around


def test_a_backup_with_a_link_is_refused(store: Store, tmp_path: Path) -> None:
    folder = store.backup(tmp_path / "backup")
    sample = next((folder / "samples").rglob("*.parquet"))
    outside = sample.rename(tmp_path / "outside.parquet")
    sample.symlink_to(outside)
    with pytest.raises(StoreCorrupt, match="is a link"):
        store.restore(folder)


@pytest.mark.parametrize("listed", [None, [], {}, {"gogh.duckdb": None}, {"gogh.duckdb": "abc"}, 7])
def test_a_list_that_is_none_is_refused(store: Store, tmp_path: Path, listed: object) -> None:
    folder = store.backup(tmp_path / "backup")
    raw = json.loads((folder / "backup.json").read_text())
    (folder / "backup.json").write_text(json.dumps({**raw, "files": listed}))
    with pytest.raises(StoreCorrupt, match=r"backup.json lists no|has no checksum"):
        store.restore(folder)


def test_a_view_in_a_backup_reads_no_other_file(store: Store, tmp_path: Path) -> None:
    folder = store.backup(tmp_path / "backup")
    raw = duckdb.connect(str(folder / "gogh.duckdb"))
    raw.execute("DROP TABLE job_events")
    raw.execute(
        "CREATE VIEW job_events AS SELECT content AS job_id FROM read_text('/etc/hostname')"
    )
    raw.close()
    relist(folder)
    before = store.path.read_bytes()
    with pytest.raises(StoreError) as told:
        store.restore(folder)
    assert "\n" not in str(told.value)
    assert store.path.read_bytes() == before
    assert not list(store.path.parent.glob("*.restore*"))


def test_a_folder_that_is_no_backup_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is no backup"):
        store.restore(tmp_path)


def test_a_backup_never_overwrites(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="exists already"):
        store.backup(tmp_path)
