"""`Store`: the one way to the database.

Writers and the program's own reads take the gate and open DuckDB for a short time; people read the
published snapshot. What moves between the database and Parquet is in `ageing`, how a snapshot is
made in `publishing`, backups in `backups`.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa

from gogh_core.errors import InvalidInput, StoreError, StoreLocked
from gogh_core.settings import Settings
from gogh_core.store import (
    ageing,
    backups,
    commits,
    faults,
    files,
    gate,
    migrations,
    people,
    publishing,
    samples,
    views,
)
from gogh_core.store.texts import fetch, fill, run, statement, transaction

__all__ = ["Glance", "Store"]

Connection = duckdb.DuckDBPyConnection


class Store:
    """The database, its snapshot and its Parquet samples."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.path: Path = settings.database
        self.samples: Path = samples.folder_of(self.path)
        self.snapshot_path: Path = self.path.with_suffix(".snapshot" + self.path.suffix)
        self._gate = self.path.with_name(self.path.name + ".open")
        self._timeout_s = settings.store.lock_timeout_s

    def migrate(self) -> None:
        """Bring the database to the shape of this program; creates it where it is missing."""
        files.make_home(self.settings)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"cannot be made: {error.strerror}", where=str(self.path.parent), todo="set `home`"
            ) from error
        with faults.file_errors(self.path), self.gate():
            if not self.path.exists():
                self._create()
                return
            with self.connect(read_only=True) as connection:
                missing = migrations.check(connection, str(self.path), migrations.known())
                if not missing and views.are_current(connection, self.samples):
                    return
                moved = self._take_over(connection) if self._has_samples(connection) else 0
            self._apply(self.path, missing)
        if moved and self.snapshot_path.exists():
            self.publish()  # the old one reads the files where they were

    @staticmethod
    def _has_samples(connection: Connection) -> bool:
        return "sample_files" in fetch(connection, "store_tables")["table_name"].to_pylist()

    def _take_over(self, connection: Connection) -> int:
        """Bring the files of samples from where they were to the folder of this database."""
        names = samples.checked(
            fetch(connection, "store_file_names")["file"].to_pylist(), self.path
        )
        before = [path for path in (views.folder(connection), self.older_samples) if path]
        if not names or self.samples in before[:1]:
            return 0
        found = samples.owner(self.samples)
        if found is not None:
            samples.claim(self.samples, self.path, commits.identity(connection), names)
        return samples.take_over(self.samples, names, before)

    @property
    def virtual(self) -> bool:
        """Whether times are those of an embedded cluster, whose clock is its own."""
        return self.settings.cluster.manager == "simulated"

    @property
    def older_samples(self) -> Path:
        """Where an older GOGH kept the samples of every database beside it."""
        return self.path.parent / "samples"

    def _create(self) -> None:
        """Make the database beside its place, so that it is never seen half made."""
        staged = self.path.with_name(self.path.name + ".create")
        for rest in (staged, staged.with_name(staged.name + ".wal")):
            files.remove(rest)
        with files.whole_or_gone(staged):
            self._apply(staged, migrations.known())
            files.sync(staged)
            files.remove(commits.file_of(self.path))
            files.replace(staged, self.path)

    def _apply(self, path: Path, missing: tuple[migrations.Migration, ...]) -> None:
        with self.connect(path) as connection:
            with transaction(connection):
                migrations.apply_migrations(connection, missing, files.now_utc())
                views.renew(connection, self.samples)
            # Closing does it too, and says nothing when it fails.
            fetch(connection, "store_checkpoint")

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """One counted transaction on a connection to the database; the caller holds the gate."""
        with faults.file_errors(self.path):
            commits.prepare(self.path)
        with transaction(connection):
            yield
            store_id, number = commits.count(connection)
        try:
            commits.tell(self.path, store_id, number)
        except OSError as error:  # committed all the same; the next one tells both
            _log.warning("%s: cannot be written: %s", commits.file_of(self.path), error)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction on a short read-write connection; rolled back when the block raises."""
        self.must_exist()
        with self.gate(), self.connect() as connection, self.transaction(connection):
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """The newest data, read-only, for the program itself; short, it shares the gate."""
        self.must_exist()
        with self.gate(), self.connect(read_only=True) as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """The published snapshot, for people: reads nothing but itself and the Parquet samples."""
        if not _one_snapshot.acquire(timeout=self._timeout_s):
            raise StoreLocked(
                "this process has a snapshot open already", where=str(self.snapshot_path)
            )
        try:
            with people.spill_folder(self.settings) as spill, self._open_snapshot(spill) as found:
                yield found
        finally:
            _one_snapshot.release()

    @contextmanager
    def glance(self, wait_s: float = 0.2) -> Iterator[Glance]:
        """The store as one look at it: the newest data, or the snapshot while others write.

        It waits no longer than `wait_s` for those who write, unless nothing was published yet.
        """
        self.must_exist()
        with ExitStack() as stack:
            fresh = True
            try:
                stack.enter_context(gate.hold(self._gate, wait_s))
                connection = stack.enter_context(self.connect(read_only=True))
            except StoreLocked:
                fresh = not self.snapshot_path.exists()
                connection = stack.enter_context(self.read() if fresh else self.snapshot())
            if migrations.check(connection, str(self.path), migrations.known()):
                raise StoreError(
                    "is of an older GOGH",
                    where=str(self.path),
                    todo="`gogh up` or a cycle renews it",
                )
            yield Glance(self.settings, connection, fresh=fresh)

    def publish(self) -> Path:
        """Make what is committed now the snapshot that people read."""
        self.must_exist()
        with faults.file_errors(self.path.parent):
            return publishing.publish(self)

    def append(self, table: str, rows: pa.Table) -> int:
        """Add Arrow rows by column name, in one transaction; how many they were."""
        if rows.num_rows == 0:
            return 0
        with self.write() as connection:
            append_rows(connection, table, rows)
        return int(rows.num_rows)

    def age(self, now: datetime) -> ageing.AgeReport:
        """Move samples older than the hot hours to Parquet, compact full days, drop old ones.

        `now` is the cluster's time, as the samples' is.
        """
        self.must_exist()
        with faults.file_errors(self.samples):
            return ageing.age(self, now)

    def backup(self, to: Path) -> Path:
        """Write database and samples to a fresh folder."""
        self.must_exist()
        with faults.file_errors(to):
            return backups.backup(self, to)

    def restore(self, source: Path) -> None:
        """Put a backup in the place of this store, after it was verified."""
        with faults.file_errors(self.path.parent):
            backups.restore(self, source)

    @contextmanager
    def gate(self) -> Iterator[None]:
        """Nobody else opens the database while this is held."""
        with gate.hold(self._gate, self._timeout_s):
            yield

    @contextmanager
    def connect(self, path: Path | None = None, *, read_only: bool = False) -> Iterator[Connection]:
        """A DuckDB connection to the database (or another file); the caller holds the gate."""
        path = path or self.path
        log = path.with_name(path.name + ".wal")
        if path == self.path and not read_only and log.exists():
            # A look that changes nothing: a log that was cut is kept as it is.
            with self.connect(read_only=True):
                pass
        connection = self.open(path, read_only=read_only)
        try:
            fetch(connection, "store_session")
            if path == self.path:
                commits.check(connection, path, commits.told(path))
            yield connection
        except duckdb.Error as error:
            raise faults.ours(error, path) from error
        finally:
            connection.close()

    def open(self, path: Path, *, read_only: bool, memory_mb: int | None = None) -> Connection:
        """Open with retry while a program that knows no gate (a DuckDB shell) has the file open."""
        deadline = time.monotonic() + self._timeout_s
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory_mb or self.settings.store.memory_limit_mb}MB",
            "threads": self.settings.store.threads,
            "autoinstall_known_extensions": False,
        }
        while True:
            try:
                return duckdb.connect(str(path), read_only=read_only, config=config)
            except duckdb.IOException as error:
                if "Could not set lock" not in str(error):
                    raise faults.ours(error, path, opening=True) from error
                if time.monotonic() >= deadline:
                    holder = re.search(r"PID (\d+)", str(error))
                    raise StoreLocked(
                        f"held by process {holder[1] if holder else 'unknown'}",
                        where=str(path),
                        todo="close the program that has it open; people use the snapshot",
                    ) from error
                time.sleep(0.05)
            except duckdb.Error as error:
                raise faults.ours(error, path, opening=True) from error

    @contextmanager
    def _open_snapshot(self, spill: Path | None) -> Iterator[Connection]:
        limits = self.settings.sql
        for attempt in range(5):
            if not self.snapshot_path.exists():
                raise StoreError(
                    "no snapshot has been published yet",
                    where=str(self.snapshot_path),
                    todo="run a cycle or `gogh snapshot`",
                )
            before = self.snapshot_path.stat().st_ino
            try:
                connection = self.open(
                    self.snapshot_path, read_only=True, memory_mb=limits.memory_limit_mb
                )
                break
            except StoreError:
                # It may have been replaced between two looks at it; then it is tried again.
                if attempt == 4 or self.snapshot_path.stat().st_ino == before:
                    raise
        try:
            fetch(connection, "store_session")
            bounds = {
                "samples": str(self.samples),
                "spill": str(spill or ""),
                "spill_limit": f"{limits.spill_limit_mb}MB",
            }
            run(connection, statement("store_lock_down"), bounds)
            yield connection
        except duckdb.Error as error:
            raise faults.ours(error, self.snapshot_path, todo=faults.AGAIN) from error
        finally:
            connection.close()

    def must_exist(self) -> None:
        """Raise where there is no database yet."""
        if not self.path.exists():
            raise StoreError(
                "there is no database yet", where=str(self.path), todo="run a cycle or `gogh demo`"
            )


class Glance(Store):
    """A store that is only read, by one connection that is open already."""

    def __init__(self, settings: Settings, connection: Connection, *, fresh: bool) -> None:
        super().__init__(settings)
        self._connection = connection
        self.fresh = fresh
        """Whether it is the newest data, not the last snapshot."""

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """The open connection."""
        yield self._connection

    snapshot = read


# In one process DuckDB shares an instance, and its locked settings, between connections to one
# file; so snapshots are opened one after the other.
_one_snapshot = threading.Lock()

_log = logging.getLogger(__name__)


def append_rows(connection: Connection, table: str, rows: pa.Table) -> None:
    """Add Arrow rows to a table by column name, in the caller's transaction."""
    sql = fill(statement("store_append"), table=table)
    connection.register("store_rows", rows)
    try:
        connection.execute(sql)
    except (
        duckdb.CatalogException,
        duckdb.BinderException,
        duckdb.ConstraintException,
        duckdb.ConversionException,
    ) as error:
        raise InvalidInput(faults.first_line(error), where=f"rows for {table}") from error
    connection.unregister("store_rows")
