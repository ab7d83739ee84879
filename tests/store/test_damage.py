"""A damaged database is never backed up or published as good, and lost commits are noticed."""

from __future__ import annotations

import os
import random
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from gogh_core.errors import GoghError, StoreCorrupt, StoreError
from gogh_core.store import Store, ask, blocks
from tests.store.test_ageing import NOON, samples
from tests.store.test_store import count, events

_CHANCE = random.Random(15)
_FLIPS = sorted(_CHANCE.random() for _ in range(30))


@pytest.fixture
def store(store: Store) -> Store:
    """Some history, a hole where rows were deleted, and a snapshot."""
    store.append("gpu_samples", samples(NOON - timedelta(hours=40), 40, period_s=10))
    store.append("job_events", events(4000))
    with store.write() as connection:
        connection.execute("DELETE FROM job_events WHERE hash(job_id) % 2 = 0")
    store.publish()
    return store


def everything(path: Path) -> list[tuple[object, ...]]:
    """Every value of every table."""
    connection = duckdb.connect(str(path), read_only=True)
    try:
        tables = connection.sql("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
        return [row for (t,) in tables for row in connection.sql(f'FROM "{t}"').fetchall()]
    finally:
        connection.close()


def flip(path: Path, share: float) -> int:
    """Flip one bit, so far into the file."""
    at = int(share * path.stat().st_size)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << at % 8]))
    return at


@pytest.mark.parametrize("share", [0.0, 0.00001, *_FLIPS])
def test_a_flipped_bit_is_refused_or_changes_no_value(
    store: Store, tmp_path: Path, share: float
) -> None:
    whole = everything(store.path)
    good = store.snapshot_path.read_bytes()
    flip(store.path, share)
    refused = []
    for attempt in (store.publish, lambda: store.backup(tmp_path / "backup")):
        try:
            attempt()
        except StoreCorrupt as error:
            refused.append(str(error))
    if refused:
        assert len(refused) == 2
        assert "\n" not in refused[0]
        assert "is damaged" in refused[0]
        assert "restore a backup" in refused[0]
        assert store.snapshot_path.read_bytes() == good
        assert not (tmp_path / "backup").exists()
    else:
        assert everything(store.snapshot_path) == whole
        assert everything(tmp_path / "backup" / "gogh.duckdb") == whole
    left = [p.name for p in (*tmp_path.iterdir(), *store.path.parent.iterdir())]
    assert not [name for name in left if name.endswith((".new", ".part"))]


def test_a_torn_block_that_nobody_uses_is_no_damage(store: Store) -> None:
    """As a writer leaves it that was killed while it wrote."""
    with store.write() as connection:
        connection.execute("DELETE FROM gpu_samples")
    store.append("job_events", events(1))
    with store.path.open("r+b") as file:
        layout = blocks.Layout.of(file.fileno())
        free = set(layout.counted) - blocks.in_use(file.fileno(), layout, set())
        assert free
        for at in free:
            os.pwrite(file.fileno(), b"torn", at + layout.block // 2)
        file.seek(0, os.SEEK_END)
        file.write(b"half a block")
    before = everything(store.path)
    store.publish()
    assert everything(store.snapshot_path) == before


def test_a_database_cut_short_is_refused(store: Store) -> None:
    with store.path.open("r+b") as file:
        layout = blocks.Layout.of(file.fileno())
        file.truncate(max(blocks.in_use(file.fileno(), layout, set())))
    with pytest.raises(StoreCorrupt, match="is damaged"):
        store.publish()


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_reading_a_damaged_block_is_one_clear_line(store: Store, share: float) -> None:
    with store.path.open("r+b") as file:
        layout = blocks.Layout.of(file.fileno())
        for at in layout.starts:
            os.pwrite(file.fileno(), b"garbage", at + int(share * layout.block))
    with (
        pytest.raises(StoreCorrupt, match=r"Corrupt database file.*restore a backup"),
        store.read(),
    ):
        pass


def test_reading_a_damaged_snapshot_says_what_to_do(store: Store) -> None:
    with store.snapshot_path.open("r+b") as file:
        layout = blocks.Layout.of(file.fileno())
        held = duckdb.connect(str(store.path), read_only=True)
        found = held.sql(
            "SELECT DISTINCT block_id FROM pragma_storage_info('gpu_samples') WHERE block_id >= 0"
        ).fetchall()
        held.close()
        for (number,) in found:
            os.pwrite(file.fileno(), b"garbage", blocks.HEADERS_BYTES + number * layout.block + 999)
    with pytest.raises(StoreCorrupt, match=r"Corrupt database file.*gogh snapshot"):
        ask(store, "SELECT sum(power_w), max(ts), max(server_id), max(gpu_index) FROM gpu_samples")


def killed_after_commits(store: Store, commits: int) -> Path:
    """A writer that was killed before it wrote its commits from the log into the file; the log."""
    with store.gate(), store.connect() as connection:
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        for number in range(commits):
            with store.transaction(connection):
                connection.execute(
                    "INSERT INTO job_events (job_id, ts, event) VALUES (?, now(), 'killed')",
                    [str(number)],
                )
    log = store.path.with_name(store.path.name + ".wal")
    assert log.stat().st_size > 0
    return log


def test_a_whole_log_brings_every_commit_back(store: Store) -> None:
    before = count(store)
    killed_after_commits(store, 50)
    assert count(store) == before + 50


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw[:-3],
        lambda raw: b"",
        lambda raw: None,
        lambda raw: random.Random(0).randbytes(len(raw)),
        lambda raw: raw[:1500] + b"garbage" + raw[1507:],
        lambda raw: raw[:-40] + b"garbage" + raw[-33:],
    ],
    ids=["half", "three bytes", "empty", "removed", "garbage", "in its middle", "at its end"],
)
def test_a_cut_or_garbage_log_is_noticed_and_nothing_is_changed(store: Store, damage) -> None:
    log = killed_after_commits(store, 50)
    changed = damage(log.read_bytes())
    log.unlink() if changed is None else log.write_bytes(changed)
    before = store.path.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=r"restore a backup") as told:
            store.append("job_events", events(1))
        assert "\n" not in str(told.value)
        with pytest.raises(StoreError), store.read():
            pass
        with pytest.raises(StoreError):
            store.publish()
    assert store.path.read_bytes() == before
    if changed:
        assert log.read_bytes() == changed


def test_who_accepts_the_loss_goes_on(store: Store) -> None:
    had = count(store)
    log = killed_after_commits(store, 50)
    log.write_bytes(log.read_bytes()[:-3])
    with pytest.raises(StoreCorrupt, match=r"1 of its \d+ commits is missing.*remove .*\.commits"):
        store.append("job_events", events(1))
    store.path.with_name(store.path.name + ".commits").unlink()
    assert count(store) == had + 49
    store.append("job_events", events(1))
    assert count(store) == had + 50


def test_an_older_copy_put_in_its_place_is_noticed(store: Store) -> None:
    older = store.path.read_bytes()
    store.append("job_events", events(1))
    store.path.write_bytes(older)
    with pytest.raises(StoreCorrupt, match="is missing"):
        store.append("job_events", events(1))


def test_a_restored_backup_is_not_taken_for_a_loss(store: Store, tmp_path: Path) -> None:
    had = count(store)
    folder = store.backup(tmp_path / "backup")
    store.append("job_events", events(3))
    store.restore(folder)
    assert count(store) == had
    store.append("job_events", events(1))
    assert count(store) == had + 1


@pytest.mark.parametrize(
    "sql",
    ["SELECT * FROM nowhere", "SELEC 1", "SELECT 1 / 'x'", "SELECT error('no')", "CHECKPOINT x"],
)
def test_every_error_of_duckdb_becomes_ours(store: Store, sql: str) -> None:
    with pytest.raises(GoghError) as told, store.write() as connection:
        connection.execute(sql)
    assert "\n" not in str(told.value)
    assert str(store.path) in str(told.value)
