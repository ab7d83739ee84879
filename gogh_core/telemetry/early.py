"""Rows from the future: a clock was set back, or a server's is ahead. They wait for their time.

`split_early` takes them out of a batch before it is judged, `keep_early` puts them beside the late
ones in the batch's own transaction, and `due_rows` gives those whose time has come, as a
batch of its own.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gogh_core.settings import Settings
from gogh_core.store import Store, fetch
from gogh_core.telemetry.parse import SPILL, Parser, Piece

__all__ = ["SLACK_S", "due_rows", "forget_due", "keep_early", "split_early"]

SLACK_S = 5.0  # as the contracts allow: clocks differ by that much


def split_early(rows: pa.Table, now: datetime, early_s: float) -> tuple[pa.Table, pa.Table]:
    """Rows to be judged now, and those that are to wait."""
    if "ts" not in rows.column_names or not len(rows):
        return rows, rows.slice(0, 0)
    kind = rows["ts"].type
    first = pa.scalar(now + timedelta(seconds=SLACK_S), kind)
    last = pa.scalar(now + timedelta(seconds=early_s), kind)
    ahead = pc.and_(pc.greater(rows["ts"], first), pc.less_equal(rows["ts"], last))
    waits = pc.fill_null(pc.and_(ahead, pc.is_null(rows["parse_error"])), False)
    if not pc.any(waits).as_py():
        return rows, rows.slice(0, 0)
    return rows.filter(pc.invert(waits)), rows.filter(waits)


def keep_early(connection: duckdb.DuckDBPyConnection, rows: pa.Table, early: pa.Table) -> None:
    """Make the early rows part of the checked batch again, with their fate."""
    if not len(early):
        return
    checked = connection.sql("FROM checked").to_arrow_table()
    copies = pa.array([False] * len(early))
    more = early.append_column("is_copy", copies) if "is_copy" in checked.column_names else early
    connection.register("batch", rows)
    connection.register("checked", pa.concat_tables([checked, more], promote_options="permissive"))
    connection.register("early", early.select(["row_id", "part", "line"]))
    fetch(connection, "telemetry_early")


def due_rows(
    store: Store, settings: Settings, table: str, *, now: datetime, limit: int
) -> tuple[Piece, pa.Table, list[str]] | None:
    """A batch of rows whose time has come, and the ids under which they waited."""
    until = now + timedelta(seconds=SLACK_S)
    with store.read() as connection:
        found = fetch(connection, "telemetry_due_rows", table=table, until=until, limit=limit)
    if not len(found):
        return None
    ids = found["late_id"].to_pylist()
    lines = pa.table(
        {
            "line": pa.array(range(len(found)), pa.int64()),
            "error": pa.nulls(len(found), pa.string()),
            "raw": found["row_json"],
        }
    )
    checksum = hashlib.sha256("".join(ids).encode()).hexdigest()
    piece = Piece("early", table, lines, ids[0], ids[-1], checksum, form="lines")
    parser = Parser(settings.home / SPILL)
    try:
        rows = parser.rows([piece])
    finally:
        parser.close()
    if "written_by" in rows.column_names:  # whoever wrote it stays the one who did
        writers = pc.take(found["written_by"], rows["line"])
        rows = rows.set_column(rows.column_names.index("written_by"), "written_by", writers)
    return piece, rows, ids


def forget_due(connection: duckdb.DuckDBPyConnection, ids: list[str]) -> None:
    """They wait no longer."""
    connection.register("due", pa.table({"late_id": pa.array(ids, pa.string())}))
    fetch(connection, "telemetry_forget_early")
    connection.unregister("due")
