"""The folder of samples belongs to one database; only files of our own form leave it."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gogh_core.errors import StoreCorrupt, StoreError
from gogh_core.settings import load
from gogh_core.store import Store, ask, samples
from tests.store.test_ageing import NOON, powers
from tests.store.test_ageing import samples as rows

_NAME = f"gpu_samples/day=2026-01-04/hour=01/{0:032x}.parquet"


def named(home: Path, database: str, migrated: Path) -> Store:
    """A store with another database file in the same home."""
    home.mkdir(parents=True, exist_ok=True)
    store = Store(load(home=home, store={"path": database}))
    shutil.copyfile(migrated, store.path)
    with store.write() as connection:
        connection.execute("UPDATE store_identity SET store_id = ?", [database])
    return store


def test_two_stores_in_one_home_keep_all_their_rows(tmp_path: Path, migrated: Path) -> None:
    stores = [named(tmp_path, name, migrated) for name in ("one.duckdb", "two.duckdb")]
    for store in stores:
        store.append("gpu_samples", rows(NOON - timedelta(hours=30), 30, period_s=600))
    for _ in range(2):
        for store in stores:
            store.age(NOON)
    for store in stores:
        assert powers(store) == [float(i) for i in range(360)]
        store.publish()
        assert ask(store, "SELECT count(*) AS n FROM gpu_samples_all")["n"][0].as_py() == 360
    assert stores[0].samples.name == "one.samples"
    assert stores[1].samples.name == "two.samples"


def test_a_folder_of_another_database_is_left_alone(tmp_path: Path, migrated: Path) -> None:
    """Two databases whose folders have the same name; and a new database beside an old folder."""
    first = named(tmp_path, "one.duckdb", migrated)
    first.append("gpu_samples", rows(NOON - timedelta(hours=10), 10))
    first.age(NOON)
    before = {path: path.read_bytes() for path in first.samples.rglob("*") if path.is_file()}
    other = named(tmp_path, "one.db", migrated)
    other.append("gpu_samples", rows(NOON - timedelta(hours=10), 10))
    with pytest.raises(StoreError, match=r"samples of another database \(one.duckdb, .*; move"):
        other.age(NOON)
    first.path.unlink()
    Path(f"{first.path}.commits").unlink()
    again = named(tmp_path, "one.duckdb", migrated)
    with again.write() as connection:
        connection.execute("UPDATE store_identity SET store_id = 'another'")
    with pytest.raises(StoreError, match="samples of another database"):
        again.age(NOON)
    assert {p: p.read_bytes() for p in first.samples.rglob("*") if p.is_file()} == before
    assert len(powers(other)) == 1200


def test_a_folder_with_files_of_somebody_else_is_not_taken(store: Store) -> None:
    store.samples.mkdir()
    (store.samples / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match=r"holds thesis.txt, which is not ours; move"):
        store.age(NOON)
    assert (store.samples / "thesis.txt").read_text() == "years of work"


def test_a_file_that_is_not_of_our_form_is_never_removed(store: Store) -> None:
    store.append("gpu_samples", rows(NOON - timedelta(hours=10), 10))
    store.age(NOON)
    kept = [
        store.samples / "notes.txt",
        store.samples / "gpu_samples" / "x.parquet",
        store.samples / "elsewhere" / "day=2026-01-04" / f"{0:032x}.parquet",
    ]
    for path in kept:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("mine")
    assert store.age(NOON).files_removed == 0
    assert all(path.read_text() == "mine" for path in kept)


@pytest.mark.parametrize("retired", ["NULL", "1"])
@pytest.mark.parametrize(
    "name", ["../../victim.txt", "/tmp/victim.txt", "gpu_samples/../x.parquet"]
)
def test_a_manifest_that_names_a_file_outside_is_refused(
    store: Store, tmp_path: Path, name: str, retired: str
) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("not yours")
    store.append("gpu_samples", rows(NOON - timedelta(hours=10), 10))
    store.age(NOON)
    store.publish()
    with store.write() as connection:
        connection.execute(
            f"INSERT INTO sample_files VALUES (?, 'gpu_samples', ?, ?, 'hour', 1, 1, 'ts', ?, "
            f"{retired}, NULL)",
            [name, NOON, NOON, NOON],
        )
    with pytest.raises(StoreCorrupt, match=r"which is no file of samples; .*restore"):
        store.age(NOON)
    if retired == "NULL":
        with pytest.raises(StoreCorrupt, match="which is no file of samples"):
            store.backup(tmp_path / "backup")
        assert not (tmp_path / "backup").exists()
    assert victim.read_text() == "not yours"


def test_nothing_is_removed_or_written_through_a_link(store: Store, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    victim = outside / "hour=01" / f"{1:032x}.parquet"
    victim.parent.mkdir(parents=True)
    victim.write_text("not yours")
    store.age(NOON)
    tables = store.samples / "gpu_samples"
    tables.mkdir()
    (tables / "day=2026-01-04").symlink_to(outside)
    assert store.age(NOON).files_removed == 0
    with samples.opened(store.samples) as folder, pytest.raises(OSError, match="Not a directory"):
        samples.remove(folder, f"gpu_samples/day=2026-01-04/hour=01/{victim.name}")
    (tables / "day=2026-01-04").unlink()
    tables.rmdir()
    tables.symlink_to(outside)
    store.append("gpu_samples", rows(NOON - timedelta(hours=10), 10))
    with pytest.raises(StoreError, match="cannot be opened as a folder of samples"):
        store.age(NOON)
    assert victim.read_text() == "not yours"
    assert sorted(p.name for p in outside.rglob("*.parquet")) == [victim.name]
    assert len(powers(store)) == 1200


def test_a_link_in_the_place_of_the_folder_is_refused(store: Store, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    store.samples.symlink_to(outside)
    with pytest.raises(StoreError, match="cannot be opened as a folder of samples"):
        store.age(NOON)
    assert not list(outside.iterdir())


@given(st.one_of(st.text(), st.from_regex(r"\A(\.\./|/|gpu_samples/|day=1-01-01/)*.{0,40}\Z")))
def test_only_names_of_our_own_form_are_removed(name: str) -> None:
    handle = os.open("/", os.O_RDONLY)
    try:
        if samples._FORM.fullmatch(name) is None:
            with pytest.raises(StoreCorrupt, match="is not removed"):
                samples.remove(handle, name)
        else:
            assert ".." not in name
            assert not name.startswith("/")
    finally:
        os.close(handle)


# -- a store of an older GOGH --------------------------------------------------------------------


def older(store: Store) -> None:
    """Put the store back to how an older GOGH left it: one folder `samples`, no mark, no count."""
    old = store.path.parent / "samples"
    old.mkdir(exist_ok=True)
    with store.write() as connection:
        names = connection.sql("SELECT file FROM sample_files").fetchall()
        for (name,) in names:
            (old / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(store.samples / name, old / name)
        for table in ("gpu_samples", "job_progress"):
            view = connection.sql(
                f"SELECT sql FROM duckdb_views() WHERE view_name = '{table}_all'"
            ).fetchall()[0][0]
            text = view.replace(str(store.samples), str(old))
            connection.execute(text.replace("CREATE VIEW", "CREATE OR REPLACE VIEW"))
        connection.execute(
            "UPDATE store_facts SET value = replace(value, ?, ?) WHERE name = 'views'",
            [str(store.samples), str(old)],
        )
    shutil.rmtree(store.samples)
    raw = duckdb.connect(str(store.path))
    raw.execute("DROP TABLE store_identity")
    raw.execute("ALTER TABLE sample_files DROP COLUMN expired_s")
    raw.execute("DROP TABLE dropped_totals")
    raw.execute("DELETE FROM schema_migrations WHERE number >= 30")
    raw.execute("DELETE FROM store_facts WHERE name = 'ageing'")
    raw.close()
    Path(f"{store.path}.commits").unlink()


def test_stores_that_shared_a_folder_take_their_own_files_over(
    tmp_path: Path, migrated: Path
) -> None:
    stores = [named(tmp_path, name, migrated) for name in ("one.duckdb", "two.duckdb")]
    for store in stores:
        store.append("gpu_samples", rows(NOON - timedelta(hours=30), 30, period_s=600))
        store.age(NOON)
        older(store)
        shutil.copyfile(store.path, store.snapshot_path)
    shared = tmp_path / "samples"
    (shared / "notes.txt").write_text("mine")
    for store in stores:
        store.migrate()
        assert powers(store) == [float(i) for i in range(360)]
        # The snapshot that people read is renewed with it.
        assert ask(store, "SELECT count(*) AS n FROM gpu_samples_all")["n"][0].as_py() == 360
    for store in stores:
        store.publish()
        store.age(NOON)
        os.utime(store.samples / "owner.json", (1, 1))
        store.age(NOON)
        assert powers(store) == [float(i) for i in range(360)]
        assert json.loads((store.samples / "owner.json").read_text())["database"] == store.path.name
    assert [str(p.relative_to(shared)) for p in shared.rglob("*")] == ["notes.txt"]


def test_a_home_that_was_moved_keeps_its_samples(store: Store, tmp_path: Path) -> None:
    store.append("gpu_samples", rows(NOON - timedelta(hours=10), 10))
    store.age(NOON)
    shutil.move(store.path.parent, tmp_path / "moved")
    moved = Store(load(home=tmp_path / "moved"))
    moved.migrate()
    assert len(powers(moved)) == 1200
    assert moved.age(NOON).files_removed == 0
