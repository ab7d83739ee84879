"""Queries of people, within bounds: memory, disk, time, rows and bytes of the answer.

The snapshot's connection is bound in memory and spill (`spill_folder`, below home); `answer` reads
a result as it comes and ends where it is too long or too slow. What DuckDB does not count as its
memory (one value of gigabytes) and does not interrupt (one call within a row) is bound by
`bounded_process`, for programs that do nothing but answer one query.
"""

from __future__ import annotations

import os
import queue
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gogh_core.errors import InvalidInput, ResultTooLarge
from gogh_core.settings import Settings, SqlSettings
from gogh_core.store.texts import distinct

__all__ = ["answer", "bounded_process", "spill_folder"]

_BATCH_ROWS = 2048
_STALE_S = 86_400.0
_GRACE_S = 5.0
_SLACK_MB = 512
"""What Python, Arrow and DuckDB take beside a query's memory and its answer."""


@contextmanager
def spill_folder(settings: Settings) -> Iterator[Path | None]:
    """A folder of its own below home for what does not fit in memory; None where there is none.

    DuckDB removes what it finds in such a folder, so no two share one. Those of killed processes
    go when they are old.
    """
    top = settings.home.absolute() / "spill"
    try:
        top.mkdir(mode=0o700, exist_ok=True)
        _remove_stale(top)
        found = Path(tempfile.mkdtemp(prefix="sql-", dir=top))
    except OSError:  # somebody who may read the snapshot and write nothing: memory only
        yield None
        return
    try:
        yield found
    finally:
        shutil.rmtree(found, ignore_errors=True)


def _remove_stale(top: Path) -> None:
    for folder in top.glob("sql-*"):
        if time.time() - folder.lstat().st_mtime > _STALE_S:
            shutil.rmtree(folder, ignore_errors=True)


def answer(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: dict[str, Any],
    limits: SqlSettings,
    *,
    where: str,
) -> pa.Table:
    """The answer of one statement; our error where it goes over one of the limits."""
    outcome: queue.SimpleQueue[pa.Table | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            outcome.put(_asked(connection, sql, parameters, limits, where))
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            outcome.put(error)

    # In a thread of its own: reading as Arrow, DuckDB does not look for Ctrl-C.
    thread = threading.Thread(target=work, name="query", daemon=True)
    thread.start()
    try:
        found = outcome.get(timeout=limits.timeout_s)
    except BaseException as error:
        connection.interrupt()
        thread.join()
        if isinstance(error, queue.Empty):
            raise _too_slow(limits, where) from None
        raise
    thread.join()
    if isinstance(found, BaseException):
        raise found
    return found


def _asked(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: dict[str, Any],
    limits: SqlSettings,
    where: str,
) -> pa.Table:
    try:
        # No name is kept of what holds the database open: an error would keep it alive.
        asked = connection.sql(sql, params=parameters or None).to_arrow_reader(_BATCH_ROWS)
        with asked:
            return _read(asked, limits, where)
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        raise _too_large(limits, where) from error
    except OSError as error:  # what goes wrong while Arrow reads
        if "Out of Memory" in str(error):
            raise _too_large(limits, where) from error
        raise InvalidInput(str(error).strip().splitlines()[0], where=where) from error


def _read(reader: pa.RecordBatchReader, limits: SqlSettings, where: str) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    fault = ""
    for read in reader:
        batch = read.slice(0, limits.max_rows - rows)
        if batch.num_rows < read.num_rows:
            fault = f"more than {limits.max_rows:,} rows (sql.max_rows)"
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if size > limits.max_mb * 2**20:
            fault = f"more than {limits.max_mb} MB (sql.max_mb)"
            break
        batches.append(batch)
        if fault:
            break
    table = pa.Table.from_batches(batches, reader.schema)
    table = table.rename_columns(distinct(table.column_names))
    if fault:
        todo = "aggregate, add LIMIT, or raise that setting"
        raise ResultTooLarge(f"the answer has {fault}", part=table, where=where, todo=todo)
    return table


def _too_large(limits: SqlSettings, where: str) -> InvalidInput:
    return InvalidInput(
        f"needs more than {limits.memory_limit_mb} MB of memory and {limits.spill_limit_mb} MB of "
        "disk",
        where=where,
        todo="narrow it, or raise sql.memory_limit_mb and sql.spill_limit_mb",
    )


def _too_slow(limits: SqlSettings, where: str) -> InvalidInput:
    return InvalidInput(
        f"takes longer than {limits.timeout_s:g} s",
        where=where,
        todo="narrow it, or raise sql.timeout_s",
    )


@contextmanager
def bounded_process(
    limits: SqlSettings, *, end: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Within, this whole process keeps the limits, or ends with one line.

    For a program that does nothing else meanwhile: `gogh sql` and `gogh query`.
    """
    before = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = (limits.memory_limit_mb + 2 * limits.max_mb + _SLACK_MB) * 2**20 + _data_bytes()
    if before[0] == resource.RLIM_INFINITY or before[0] > allowed:
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, before[1]))
    line = str(_too_slow(limits, "query"))
    timer = threading.Timer(limits.timeout_s + _GRACE_S, end or _end, (line,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    """What this process has already."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return next(
            int(line.split()[1]) * 1024
            for line in status.splitlines()
            if line.startswith("VmData:")
        )
    except (OSError, StopIteration):
        return 2**30


def _end(line: str) -> None:
    """DuckDB is within one call that nothing interrupts: what it holds goes with the process."""
    print(f"gogh: {line}", file=sys.stderr, flush=True)
    os._exit(2)
