"""What the store promises: all or nothing, one at a time, and a clear word when it cannot."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from gogh_core.errors import (
    InvalidInput,
    MigrationRefused,
    StoreCorrupt,
    StoreError,
    StoreLocked,
)
from gogh_core.settings import Settings, load
from gogh_core.store import (
    Store,
    append_rows,
    fetch,
    fetch_rows,
    migrations,
    parse_sql,
    statement,
)
from gogh_core.store.texts import Text, texts
from gogh_core.store.views import ordered

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def events(count: int) -> pa.Table:
    return pa.table(
        {
            "job_id": [f"j{i}" for i in range(count)],
            "ts": pa.array([NOON] * count, pa.timestamp("us", "UTC")),
            "event": ["submitted"] * count,
        }
    )


def count(store: Store, table: str = "job_events") -> int:
    with store.read() as connection:
        return int(connection.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0])


# -- migrations ----------------------------------------------------------------------------------


def test_every_table_of_the_ground_is_there(store: Store) -> None:
    with store.read() as connection:
        tables = set(fetch(connection, "store_tables")["table_name"].to_pylist())
    assert tables >= {
        *("servers", "gpus", "jobs", "job_events", "gpu_samples", "job_progress"),
        *("ingest_batches", "quarantine", "observations", "estimates", "model_versions"),
        *("cycles", "plans", "placements", "moves", "power_actions"),
    }


def test_migrating_again_changes_nothing(settings: Settings) -> None:
    store = Store(settings)
    store.migrate()
    before = store.path.read_bytes()
    store.migrate()
    assert store.path.read_bytes() == before


def test_migrations_are_recorded_in_order_with_checksums(store: Store) -> None:
    with store.read() as connection:
        rows = fetch(connection, "store_applied").to_pylist()
    assert [row["number"] for row in rows] == sorted(m.number for m in migrations.known())
    assert {row["checksum"] for row in rows} == {m.checksum for m in migrations.known()}


def change(monkeypatch: pytest.MonkeyPatch, migrated: tuple[migrations.Migration, ...]) -> None:
    monkeypatch.setattr(migrations, "known", lambda: migrated)


def test_a_changed_migration_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *rest = migrations.known()
    changed = migrations.Migration(first.number, first.name, first.sql + "-- later thought")
    change(monkeypatch, (changed, *rest))
    refuse(store, MigrationRefused, "001_ground was changed after it had been applied")


def test_a_newer_database_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    *older, newest = migrations.known()
    change(monkeypatch, tuple(older))
    refuse(
        store, MigrationRefused, f"has migration {newest.name}, which this program does not know"
    )


def test_a_migration_that_comes_late_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = migrations.Migration(0, "000_late", "CREATE TABLE late (x INTEGER)")
    change(monkeypatch, (late, *migrations.known()))
    refuse(store, MigrationRefused, "000_late is missing, but later ones were applied")


def test_a_migration_that_fails_leaves_nothing_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = migrations.Migration(900, "900_good", "CREATE TABLE good (x INTEGER)")
    bad = migrations.Migration(901, "901_bad", "CREATE TABLE bad (x INTEGER); SELECT nothing")
    change(monkeypatch, (*migrations.known(), good, bad))
    with pytest.raises(StoreError, match="901_bad: failed"):
        store.migrate()
    with store.read() as connection:
        tables = set(fetch(connection, "store_tables")["table_name"].to_pylist())
        applied = fetch(connection, "store_applied")["number"].to_pylist()
    assert not tables & {"good", "bad"}
    assert max(applied) < 900


def refuse(store: Store, kind: type[StoreError], words: str) -> None:
    """It refuses with these words and does not touch the file."""
    before = store.path.read_bytes()
    with pytest.raises(kind, match=words):
        store.migrate()
    assert store.path.read_bytes() == before
    assert not store.path.with_name(store.path.name + ".wal").exists()


def test_a_file_that_is_no_database_is_refused(settings: Settings) -> None:
    settings.database.parent.mkdir(parents=True)
    settings.database.write_bytes(b"PAR1 this is no database" * 1000)
    refuse(Store(settings), StoreCorrupt, "cannot be opened as a database")


def test_an_empty_file_is_refused(settings: Settings) -> None:
    settings.database.parent.mkdir(parents=True)
    settings.database.touch()
    refuse(Store(settings), StoreCorrupt, "cannot be opened as a database")


def test_a_damaged_database_is_refused(store: Store) -> None:
    raw = bytearray(store.path.read_bytes())
    for at in range(4096, 3 * 4096, 64):
        raw[at] ^= 0xFF
    store.path.write_bytes(bytes(raw))
    refuse(store, StoreCorrupt, "cannot be opened as a database")


def test_somebody_elses_database_is_refused(settings: Settings) -> None:
    settings.database.parent.mkdir(parents=True)
    with duckdb.connect(str(settings.database)) as other:
        other.execute("CREATE TABLE recipes (name VARCHAR)")
    refuse(Store(settings), StoreCorrupt, "somebody else's database")


# -- writing -------------------------------------------------------------------------------------


def test_rows_go_in_by_column_name(store: Store) -> None:
    assert store.append("job_events", events(3)) == 3
    assert count(store) == 3


def test_no_rows_open_nothing(settings: Settings) -> None:
    assert Store(settings).append("job_events", events(0)) == 0


def test_a_block_that_raises_leaves_nothing(store: Store) -> None:
    def half_done() -> None:
        with store.write() as connection:
            append_rows(connection, "job_events", events(3))
            raise RuntimeError("the middle of it")

    with pytest.raises(RuntimeError, match="the middle of it"):
        half_done()
    assert count(store) == 0


@pytest.mark.parametrize(
    ("table", "words"),
    [("no_such_table", "no_such_table"), ("jobs; DROP TABLE jobs", "is no name of a table")],
)
def test_a_table_that_is_not_there_is_bad_input(store: Store, table: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        store.append(table, events(1))


def test_a_column_that_is_not_there_is_bad_input(store: Store) -> None:
    with pytest.raises(InvalidInput, match='does not have a column with name "colour"'):
        store.append("job_events", events(1).append_column("colour", pa.array(["red"])))


def test_times_come_back_in_utc(store: Store) -> None:
    store.append("job_events", events(1))
    with store.read() as connection:
        table = connection.sql("SELECT ts FROM job_events").to_arrow_table()
    assert str(table.schema.field("ts").type) == "timestamp[us, tz=UTC]"
    assert table["ts"][0].as_py() == NOON


def test_reading_cannot_write(store: Store) -> None:
    with (
        store.read() as connection,
        pytest.raises(duckdb.InvalidInputException, match="read-only"),
    ):
        connection.execute("DELETE FROM jobs")


def test_without_a_database_it_says_so(settings: Settings) -> None:
    with pytest.raises(StoreError, match="there is no database yet"), Store(settings).read():
        pass


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be made: Not a directory"):
        Store(load(home=tmp_path / "file" / "home")).migrate()


# -- the gate ------------------------------------------------------------------------------------


class Watched(Store):
    """Notes whether the gate is held at the moments that matter."""

    held: list[bool]

    def open(self, path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        if not path.name.endswith(".new"):  # a copy that nobody else knows yet
            self.held.append(self.is_held())
        return super().open(path, read_only=read_only)

    def is_held(self) -> bool:
        handle = os.open(str(self.path) + ".open", os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False


def test_the_gate_is_held_before_the_database_opens_until_it_is_closed(settings: Settings) -> None:
    store = Watched(settings)
    store.held = []
    store.migrate()
    with store.write() as connection:
        assert store.is_held()
        writer = connection
    with pytest.raises(duckdb.ConnectionException):
        writer.execute("SELECT 1")  # closed, and only then the gate opened
    with store.read():
        assert store.is_held()
    store.publish()
    assert store.held
    assert all(store.held)
    assert not store.is_held()


def test_a_locked_store_names_the_holder(settings: Settings, tmp_path: Path) -> None:
    Store(settings).migrate()
    hasty = Store(load(home=tmp_path / "home", store={"lock_timeout_s": 0.05}))
    program = (
        "import sys; from gogh_core.settings import load; from gogh_core.store import Store\n"
        "with Store(load(home=sys.argv[1])).write():\n"
        "    print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "home")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StoreLocked, match=f"held by process {holder.pid} "):
            hasty.append("job_events", events(1))
        assert holder.stdin is not None
        holder.stdin.close()
    assert hasty.append("job_events", events(1)) == 1


def test_a_program_without_the_gate_is_named_too(settings: Settings, tmp_path: Path) -> None:
    Store(settings).migrate()
    hasty = Store(load(home=tmp_path / "home", store={"lock_timeout_s": 0.05}))
    program = (
        "import sys, duckdb; c = duckdb.connect(sys.argv[1]); print('open', flush=True);"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(settings.database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StoreLocked, match=f"held by process {holder.pid}"):
            hasty.append("job_events", events(1))
        assert holder.stdin is not None
        holder.stdin.close()


def test_opening_twice_in_one_thread_is_an_error_not_a_wait(store: Store) -> None:
    with (
        store.write(),
        pytest.raises(StoreError, match="already open in this thread"),
        store.read(),
    ):
        pass


def test_threads_take_turns(store: Store) -> None:
    def work() -> None:
        for _ in range(5):
            store.append("job_events", events(2))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert count(store) == 30


# -- SQL files -----------------------------------------------------------------------------------


def test_every_sql_file_parses_and_fits() -> None:
    assert parse_sql.faults() == []


def test_every_view_and_query_begins_by_saying_what_a_row_is() -> None:
    for text in (*texts("views"), *texts("queries")):
        head = text.sql.split("CREATE")[0].split("SELECT")[0]
        assert head.startswith("--"), text.name
        assert "ne row" in head, text.name


def test_a_view_comes_after_those_it_reads() -> None:
    views = (
        Text("views", "a", "CREATE VIEW a AS SELECT * FROM b JOIN c"),
        Text("views", "b", "CREATE VIEW b AS SELECT * FROM c -- not a"),
        Text("views", "c", "CREATE VIEW c AS SELECT 1"),
    )
    assert [view.name for view in ordered(views)] == ["c", "b", "a"]


def test_a_view_that_reads_itself_is_refused() -> None:
    views = (Text("views", "a", "FROM b"), Text("views", "b", "FROM a"))
    with pytest.raises(StoreError, match="reads from itself"):
        ordered(views)


def test_a_step_without_its_parameter_is_bad_input(store: Store) -> None:
    with store.read() as connection, pytest.raises(InvalidInput, match="parameter name is not"):
        fetch(connection, "store_fact")


def test_a_step_that_is_not_there_is_bad_input() -> None:
    with pytest.raises(InvalidInput, match="there is no step 'nonsense'"):
        statement("nonsense")


def test_rows_are_what_arrow_makes_of_them(store: Store) -> None:
    with store.read() as connection:
        rows = fetch_rows(connection, "store_manifest")
        assert rows == []
        rows = fetch_rows(connection, "store_applied")
        assert rows
        assert rows == fetch(connection, "store_applied").to_pylist()


def test_rows_keep_times_in_utc_and_what_is_missing(store: Store) -> None:
    with store.write() as connection:
        fetch(connection, "planning_insert_cycle", cycle_id="c", window_start=NOON, revision=0,
              reason="x", state="planning", begun_at=NOON)  # fmt: skip
        [row] = fetch_rows(connection, "planning_list", rows=5, missed=False)
        assert [row] == fetch(connection, "planning_list", rows=5, missed=False).to_pylist()
    assert row["window_start"] == NOON
    assert row["window_start"].tzinfo is UTC
    assert row["ended_at"] is None
