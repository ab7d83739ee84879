"""A contract tried on a file or on what is stored, without changing anything."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from gogh_core.contracts import Suite, Verdict, as_batch, check_batch
from gogh_core.errors import BatchRefused, InvalidInput
from gogh_core.settings import Settings
from gogh_core.store import Store, fetch
from gogh_core.telemetry.parse import ENERGY_COLUMN, SPILL, Limits, Parser, pieces
from gogh_core.telemetry.shapes import SHAPES, rename
from gogh_core.telemetry.spool import FOLDERS, Found
from gogh_core.telemetry.take import with_gpu_types

__all__ = ["table_of", "try_on_file", "try_on_store"]

TRIAL_ROWS = 1_000_000


def table_of(path: Path) -> str | None:
    """The table a file is for: by the folder of the spool it lies in, or by its columns."""
    if path.parent.name in FOLDERS:
        return FOLDERS[path.parent.name]
    if path.suffix != ".csv" or not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace") as stream:
        header = next(csv.reader([stream.readline(1 << 16)], skipinitialspace=True), [])
    if any(ENERGY_COLUMN.fullmatch(name) for name in header):
        return "energy_windows"
    for table, shape in SHAPES.items():
        try:
            rename(shape, header, where=path.name)
        except BatchRefused:
            continue
        return table
    return None


@contextmanager
def _connection(store: Store) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database where there is one, so that servers and jobs are known."""
    store.migrate()
    with store.read() as connection:
        yield connection


def try_on_file(
    store: Store, settings: Settings, suite: Suite, path: Path, *, now: datetime
) -> Verdict:
    """The verdict on the rows of one file."""
    if suite.table not in SHAPES:
        raise InvalidInput(f"{suite.table} does not come from files", where=str(path))
    folders = [folder for folder, table in FOLDERS.items() if table == suite.table]
    folder = path.parent.name if path.parent.name in folders else folders[0]
    if not path.is_file():
        raise InvalidInput("is no file", where=str(path))
    facts = path.stat()
    # Old enough to be whole: a trial does not wait for a last line.
    found = Found(folder, path.name, path.absolute(), facts.st_size, facts.st_mtime_ns)
    found_pieces = []
    count = 0
    limits = Limits(settings.telemetry.max_unpacked_mb, settings.telemetry.max_rows)
    for piece in pieces(found, None, limits=limits):
        found_pieces.append(piece)
        count += len(piece.cells)
        if count > TRIAL_ROWS:
            break
    if not count:
        raise InvalidInput("has no rows", where=str(path))
    parser = Parser(settings.home / SPILL)
    try:
        rows = parser.rows(found_pieces)
    finally:
        parser.close()
    rows = as_batch(with_gpu_types(rows.drop_columns(["part"])))
    with _connection(store) as connection:
        return check_batch(connection, suite, rows, now=now)


def try_on_store(
    store: Store, suite: Suite, *, since: datetime, now: datetime, limit: int = TRIAL_ROWS
) -> Verdict | None:
    """The verdict on what is stored since a moment; None where there is nothing."""
    with _connection(store) as connection:
        rows = fetch(connection, f"telemetry_stored_{suite.table}", since=since, limit=limit)
        if not len(rows):
            return None
        # The newest came first, for the limit; a contract sees them in the order of time.
        rows = with_gpu_types(rows.take(pa.array(np.arange(len(rows))[::-1])))
        return check_batch(connection, suite, as_batch(rows), now=now)
