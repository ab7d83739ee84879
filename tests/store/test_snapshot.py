"""The snapshot: what people read, while writers go on; nothing else can be reached through it."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

import duckdb
import pytest

from gogh_core.errors import InvalidInput, StoreError
from gogh_core.settings import Settings
from gogh_core.store import Store, ask, publishing
from tests.store.test_store import count, events


def seen(store: Store) -> int:
    return int(ask(store, "SELECT count(*) AS n FROM job_events")["n"][0].as_py())


def test_people_see_what_was_published(store: Store) -> None:
    store.append("job_events", events(2))
    store.publish()
    store.append("job_events", events(3))
    assert (seen(store), count(store)) == (2, 5)
    store.publish()
    assert seen(store) == 5


def test_before_the_first_snapshot_it_says_so(store: Store) -> None:
    with pytest.raises(StoreError, match="no snapshot has been published yet"), store.snapshot():
        pass


def test_an_old_reader_keeps_its_snapshot(store: Store) -> None:
    store.append("job_events", events(2))
    store.publish()
    with store.snapshot() as old:
        store.append("job_events", events(2))
        store.publish()
        assert old.sql("SELECT count(*) FROM job_events").fetchall() == [(2,)]
    assert seen(store) == 4


def test_a_reader_never_stops_a_writer(store: Store) -> None:
    store.publish()
    with store.snapshot():
        store.append("job_events", events(1))
    assert count(store) == 1


def test_what_a_killed_writer_committed_is_published(store: Store) -> None:
    # A writer that is killed after its commit leaves its rows in the log beside the file.
    raw = duckdb.connect(str(store.path))
    raw.execute("PRAGMA disable_checkpoint_on_shutdown")
    raw.execute("INSERT INTO job_events (job_id, ts, event) VALUES ('a', now(), 'submitted')")
    raw.close()
    assert store.path.with_name(store.path.name + ".wal").exists()
    store.publish()
    assert seen(store) == 1
    assert count(store) == 1


def test_a_full_disk_is_one_clear_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.publish()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store.append("job_events", events(2))
    monkeypatch.setattr(publishing.files, "write_at", full)
    with pytest.raises(StoreError, match=r"the disk is full \(\d+ bytes left\).*make room"):
        store.publish()
    monkeypatch.undo()
    assert seen(store) == 0
    store.publish()
    assert seen(store) == 2


def test_a_writer_never_waits_for_the_copy_to_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append("job_events", events(2))
    real = publishing.files.write_at
    written = 0

    def slow_disk(target: int, data: bytes, start: int) -> None:
        nonlocal written
        written += 1
        with store.gate():  # refused if this thread held it
            real(target, data, start)

    monkeypatch.setattr(publishing.files, "write_at", slow_disk)
    store.publish()
    assert written > 3
    assert store.snapshot_path.read_bytes() == store.path.read_bytes()


class Busy(Store):
    """Writes between two slices of a copy."""

    def fill(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.writes = 0

    def disturb(self) -> None:
        if self.chance.random() < 0.7:
            self.writes += 1
            with self.write() as connection:
                connection.execute(
                    "INSERT INTO job_events SELECT uuid()::VARCHAR, now(), uuid()::VARCHAR, "
                    "uuid()::VARCHAR, [], NULL, NULL, NULL FROM range(5000)"
                )
                if self.chance.random() < 0.4:
                    connection.execute("DELETE FROM job_events WHERE hash(job_id) % 3 = 0")


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_taken_among_writers_is_one_moment(
    settings: Settings, migrated: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    settings.home.mkdir()
    shutil.copyfile(migrated, settings.database)
    store = Busy(settings)
    store.fill(seed)
    for _ in range(3):
        store.disturb()
    real = publishing.files.write_at
    monkeypatch.setattr(publishing, "_SLICE_BYTES", 300_000)
    slices = 0

    def between(target: int, data: bytes, start: int) -> None:
        nonlocal slices
        slices += 1
        real(target, data, start)

    monkeypatch.setattr(publishing.files, "write_at", between)
    real_gate = store.gate
    inside = False

    def gate() -> object:
        nonlocal inside
        if not inside and slices < 12:
            inside = True
            store.disturb()
            inside = False
        return real_gate()

    monkeypatch.setattr(store, "gate", gate)
    store.publish()
    inside = True
    assert store.writes > 3
    # A copy made with the file at rest is the truth; headers and every block in use are equal.
    with store.read() as connection:
        truth = connection.sql("SELECT count(*), sum(hash(job_id)) FROM job_events").fetchall()
    with store.snapshot() as connection:
        found = connection.sql("SELECT count(*), sum(hash(job_id)) FROM job_events").fetchall()
    assert found == truth
    assert store.snapshot_path.read_bytes() == store.path.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO jobs SELECT * FROM jobs",
        "CREATE TABLE x (a INTEGER)",
        "CREATE TEMP TABLE x AS SELECT 1",
        "DROP TABLE jobs",
        "ATTACH '/tmp/x.duckdb'",
        "COPY jobs TO '/tmp/x.csv'",
        "COPY jobs TO '{samples}/x.csv'",
        "EXPLAIN ANALYZE COPY jobs TO '{samples}/x.csv'",
        "EXPORT DATABASE '/tmp/x'",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "PRAGMA enable_profiling",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CALL pragma_version()",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_text('{samples}/../gogh.duckdb')",
        "SELECT * FROM read_blob('{home}/gogh.duckdb')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_parquet('https://example.org/x.parquet')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT * FROM parquet_schema('/etc/passwd')",
        "SELEC 1",
        "",
    ],
)
def test_people_can_only_read_the_snapshot(published: Store, text: str) -> None:
    home = published.path.parent
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    with pytest.raises(InvalidInput):
        ask(published, text.format(samples=published.samples, home=home))
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("text", ["SHOW TABLES", "DESCRIBE jobs", "FROM jobs", "VALUES (1)"])
def test_what_reads_is_answered(published: Store, text: str) -> None:
    assert ask(published, text).num_columns > 0
