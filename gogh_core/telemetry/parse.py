"""From a file to pieces: typed rows of one table with their lines, in bounded memory.

`pieces` reads what is new in a file. Cells become values in an in-memory DuckDB by the queries
`sql/steps/telemetry_json_<table>.sql` and `telemetry_parse_<table>.sql`, outside of any lock. What
cannot be read stays in the row's `raw` with `parse_error`, for the contract to send to quarantine.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gogh_core.errors import BatchRefused
from gogh_core.store import fetch
from gogh_core.telemetry.shapes import SHAPES, Shape, rename
from gogh_core.telemetry.spool import HEAD_BYTES, Found, Position, head_sha256, open_safely
from gogh_core.telemetry.text import (
    BLOCK_BYTES,
    SETTLED_S,
    Block,
    csv_cells,
    header_of,
    is_bomb,
    json_cells,
    text_blocks,
)
from gogh_core.telemetry.typed import sample_rows

__all__ = ["ENERGY_COLUMN", "SPILL", "Limits", "Parser", "Piece", "pieces"]

ENERGY_COLUMN = re.compile(r"gpu(\d+)_energy")
PARQUET_ROWS = 100_000
SPILL = "tmp"  # below home: what does not fit the memory of a parser
_LARGE_BYTES = 1 << 17  # the short way has a price for each block


@dataclass(frozen=True, slots=True)
class Limits:
    """What one file may take, unpacked, and how it is cut up."""

    unpacked_mb: int = 4096
    rows: int = 20_000_000
    """Lines of text, or rows; blank lines count."""
    seconds: float = 120.0
    memory_mb: int = 2048
    batch_rows: int = 300_000
    block_bytes: int = BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class Piece:
    """Cells of one source between two positions; `after` is where its file stands then."""

    source: str
    table: str
    cells: pa.Table
    """`line`, `error`, `raw` and cells by our names; `lines` (JSON) and `rows` (typed) differ."""
    range_from: str
    range_to: str
    checksum: str
    after: Position | None = None
    received: datetime | None = None
    notes: tuple[str, ...] = ()
    form: Literal["cells", "lines", "rows"] = "cells"
    default_name: str | None = None
    """The server or job of rows that do not name theirs."""


class Parser:
    """Turns the cells of many pieces into values at once."""

    def __init__(self, spill: Path) -> None:
        """`spill` is the folder for what does not fit its memory."""
        self.spill = spill
        self._opened: duckdb.DuckDBPyConnection | None = None

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        """Opened when first needed: rows that came typed do without."""
        if self._opened is None:
            self._opened = duckdb.connect(
                config={
                    "threads": 1,
                    "memory_limit": "512MB",
                    "temp_directory": str(self.spill),
                    "max_temp_directory_size": "1GB",
                }
            )
            fetch(self._opened, "store_session")
            fetch(self._opened, "telemetry_macros")
        return self._opened

    def rows(self, batch: Sequence[Piece]) -> pa.Table:
        """Typed rows of all pieces with `part`, the place of their piece in the batch."""
        groups: dict[tuple[str, str], list[pa.Table]] = defaultdict(list)
        for part, piece in enumerate(batch):
            count = len(piece.cells)
            cells = piece.cells.append_column("part", pa.array(np.full(count, part, np.int32)))
            if piece.form != "rows":
                names = pa.repeat(pa.scalar(piece.default_name, pa.string()), count)
                cells = cells.append_column("default_name", names)
            # Text and numbers of Parquet files do not go into one column.
            groups[piece.form, str(cells.schema)].append(cells)
        table = batch[0].table
        found = []
        for (form, _), tables in groups.items():
            cells = pa.concat_tables(tables)
            if form == "rows":
                found.append(cells)
                continue
            cells = cells.combine_chunks()
            if form == "lines":
                cells = self._run("raw_lines", cells, f"telemetry_json_{table}")
            found.append(self._values(table, cells))
        if len(found) == 1:
            return found[0]
        rows = pa.concat_tables(found, promote_options="default")
        return rows.sort_by([("part", "ascending"), ("line", "ascending")])

    def _values(self, table: str, cells: pa.Table) -> pa.Table:
        """Typed rows from cells of text; columns that are missing are null."""
        for name in SHAPES[table].columns:
            if name not in cells.column_names:
                cells = cells.append_column(name, pa.nulls(len(cells), pa.string()))
        return self._run("raw_rows", cells, f"telemetry_parse_{table}")

    def _run(self, name: str, cells: pa.Table, step: str) -> pa.Table:
        self._connection.register(name, cells)
        try:
            return fetch(self._connection, step)
        finally:
            self._connection.unregister(name)

    def close(self) -> None:
        """Free its memory."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def pieces(
    found: Found,
    known: Position | None,
    *,
    limits: Limits,
    period_s: float = 1.0,
) -> Iterator[Piece]:
    """What is new in a file, in pieces; BatchRefused when its shape is wrong."""
    with open_safely(found.path) as stream:
        if found.uid >= 0 and os.fstat(stream.fileno()).st_uid != found.uid:
            raise BatchRefused("changed hands while it was looked at", where=found.key)
        if known is not None and (
            known.head_bytes > found.size
            or head_sha256(stream, known.head_bytes) != known.head_sha256
        ):
            known = None  # another file under the old name
        head_bytes = min(found.size, HEAD_BYTES)
        start = replace(
            known or Position(found.key),
            head_sha256=head_sha256(stream, head_bytes),
            head_bytes=head_bytes,
            size=-1,
            mtime_ns=found.mtime_ns,
            status="taken",
            detail=None,
        )
        if found.name.endswith(".parquet"):
            yield from _parquet(found, start, stream, limits)
            return
        blocks = text_blocks(
            stream,
            found.name,
            position=start.position,
            lines=start.lines,
            mtime_ns=found.mtime_ns,
            max_bytes=limits.unpacked_mb * 2**20,
            max_lines=limits.rows,
            size=found.size,
            block_bytes=limits.block_bytes,
        )
        for block in blocks:
            piece = _text_piece(found, start, block, period_s)
            if piece.after is not None:
                start = piece.after
            yield piece


def _text_piece(found: Found, start: Position, block: Block, period_s: float) -> Piece:
    shape = SHAPES[found.table]
    after = replace(
        start,
        position=block.end,
        lines=block.first_line + block.lines - 1,
        size=found.size if block.to_the_end else -1,
    )
    checksum = block.checksum
    form: Literal["cells", "lines", "rows"] = "cells"
    if ".jsonl" in found.name:
        cells, form = json_cells(block), "lines"
    else:
        header, rest = (start.header, block) if start.header else header_of(block, found.key)
        after = replace(after, header=header)
        if rest is None:
            _check_header(found, shape, str(header))
            cells = json_cells(replace(block, data=b"", lines=0))
        elif found.folder == "zeus":
            cells = _energy_cells(rest, str(header), found)
        elif found.folder == "smi":
            cells, after = _smi_cells(rest, str(header), found, after, period_s)
        else:
            named = _default_name(shape, found)
            rows = None
            if found.folder == "gpu" and len(rest.data) >= _LARGE_BYTES:
                rows = sample_rows(rest, str(header), shape, found.key, named)
            if rows is not None:
                cells, form = rows, "rows"
            else:
                cells = csv_cells(rest, str(header), shape, found.key)
    return Piece(
        found.key,
        found.table,
        cells,
        str(block.start),
        str(block.end),
        checksum,
        after,
        datetime.fromtimestamp(found.mtime_ns / 1e9, UTC),
        tuple(dict.fromkeys(block.notes)),
        form,
        _default_name(shape, found),
    )


def _check_header(found: Found, shape: Shape, header: str) -> None:
    if found.folder in ("gpu", "progress", "events"):
        rename(shape, next(csv.reader([header], skipinitialspace=True)), where=found.key)


def _default_name(shape: Shape, found: Found) -> str | None:
    """A server or job that a file does not name in its rows is in the file's own name."""
    if shape.from_name is None:
        return None
    return re.sub(r"-r\d+$", "", found.stem) if found.folder == "progress" else found.stem


def _smi_cells(
    block: Block, header: str, found: Found, after: Position, period_s: float
) -> tuple[pa.Table, Position]:
    """An nvidia-smi log; one without times gets them from the time the file was last written.

    A round is all GPUs of the node. The last round was written at the file's mtime, the others one
    period apart before it, or spread since the round the file was left at.
    """
    shape = SHAPES["gpu_samples"]
    names = [cell.strip().strip('"').lower() for cell in header.split(",")]
    has_time = any(re.sub(r"\s*\[.*", "", name) in ("timestamp", "time", "ts") for name in names)
    if has_time:
        return csv_cells(block, header, shape, found.key), after
    bare = replace_required(shape, {"ts", "server_id", "gpu_index"})
    cells = csv_cells(block, header, bare, found.key)
    count = len(cells)
    if "gpu_index" in cells.column_names:
        index = pc.cast(pc.utf8_trim_whitespace(cells["gpu_index"]), pa.string()).to_pylist()
    else:
        index = ["0"] * count
        cells = cells.append_column("gpu_index", pa.array(index, pa.string()))
    rounds = np.zeros(count, np.int64)
    current = 0
    seen: set[str | None] = set()
    for row, gpu in enumerate(index):
        if gpu in seen:
            current += 1
            seen = set()
        seen.add(gpu)
        rounds[row] = current
    end = found.mtime_ns / 1e9
    total = int(rounds[-1]) + 1 if count else 0
    step = period_s
    if after.anchor is not None and total and 0.2 * period_s <= (end - after.anchor) / total <= 5:
        step = (end - after.anchor) / total
    times = end - (total - 1 - rounds) * step
    cells = cells.append_column("ts", pa.array([f"{t:.3f}" for t in times], pa.string()))
    block.notes.append("times taken from when the file was written")
    return cells, replace(after, anchor=end if count else after.anchor)


def replace_required(shape: Shape, without: set[str]) -> Shape:
    """The shape with some columns no longer required."""
    return replace(shape, required=shape.required - without)


def _energy_cells(block: Block, header: str, found: Found) -> pa.Table:
    """Energy windows: one row for each window and GPU; type and label are in the file's name."""
    base = SHAPES["energy_windows"]
    columns = [cell.strip() for cell in header.split(",")]
    gpus = {i: m[1] for i, name in enumerate(columns) if (m := ENERGY_COLUMN.fullmatch(name))}
    if not gpus:
        raise BatchRefused("has no column gpuN_energy", where=found.key)
    wide = replace(
        base,
        columns=(*base.columns, *(f"gpu{n}" for n in gpus.values())),
        required=frozenset({"window_name", "start_s", "elapsed_s"}),
        aliases={**base.aliases, **{f"gpu{n}_energy": f"gpu{n}" for n in gpus.values()}},
    )
    cells = csv_cells(block, header, wide, found.key)
    parts = found.stem.split("+")
    gpu_type, label = (parts[0], parts[1]) if len(parts) >= 2 else (None, found.stem)
    tall = []
    for number in gpus.values():
        part = cells.select(["line", "error", "raw", "window_name", "start_s", "elapsed_s"])
        part = part.append_column("energy_j", cells[f"gpu{number}"])
        for name, value in (("gpu_index", number), ("gpu_type", gpu_type), ("label", label)):
            part = part.append_column(name, pa.array([value] * len(part), pa.string()))
        bad = pc.is_valid(part["error"])
        tall.append(part if number == next(iter(gpus.values())) else part.filter(pc.invert(bad)))
    return pa.concat_tables(tall)


def _parquet(found: Found, start: Position, stream: BinaryIO, limits: Limits) -> Iterator[Piece]:
    """A Parquet file by batches of rows; one that says it unpacks to too much is refused unread."""
    shape = SHAPES[found.table]
    try:
        file = pq.ParquetFile(stream, memory_map=False)
    except (pa.ArrowInvalid, OSError) as error:
        if time.time() - found.mtime_ns / 1e9 < SETTLED_S:
            return  # it may still be growing; the footer comes last
        raise BatchRefused(f"is no Parquet file ({error})", where=found.key) from error
    meta = file.metadata
    unpacked = max(
        meta.num_rows * 8 * max(meta.num_columns, 1),
        sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups)),
    )
    if meta.num_rows > limits.rows:
        raise BatchRefused(f"has more than {limits.rows} rows: not read", where=found.key)
    if unpacked > limits.unpacked_mb * 2**20 or is_bomb(unpacked, found.size):
        raise BatchRefused(
            f"unpacks to {unpacked / 2**20:.0f} MB from {found.size / 2**20:.2f} MB: not read",
            where=found.key,
        )
    ours, notes = rename(shape, file.schema_arrow.names, where=found.key)
    used = {
        theirs: mine for theirs, mine in zip(file.schema_arrow.names, ours, strict=True) if mine
    }
    row = held = 0
    for batch in file.iter_batches(PARQUET_ROWS, columns=list(used), use_threads=False):
        first, row = row, row + batch.num_rows
        if row <= start.position and row < meta.num_rows:
            continue
        rows = pa.Table.from_batches([batch]).slice(max(start.position - first, 0))
        first = min(max(first, start.position), row)
        cells = _parquet_cells(rows, used, first)
        held += cells.nbytes  # a dictionary may hold a thousand times what the file says
        if held > limits.unpacked_mb * 2**20:
            raise BatchRefused(f"unpacks to more than {limits.unpacked_mb} MB", where=found.key)
        checksum = hashlib.sha256(f"{start.head_sha256}:{found.size}:{first}:{row}".encode())
        size = found.size if row == meta.num_rows else -1
        after = replace(start, position=row, lines=row, size=size)
        yield Piece(
            found.key,
            found.table,
            cells,
            str(first),
            str(row),
            checksum.hexdigest(),
            after,
            datetime.fromtimestamp(found.mtime_ns / 1e9, UTC),
            tuple(notes),
            default_name=_default_name(shape, found),
        )
        start = after


def _parquet_cells(rows: pa.Table, used: dict[str, str], first: int) -> pa.Table:
    columns: dict[str, pa.ChunkedArray | pa.Array] = {
        "line": pa.array(np.arange(first + 1, first + 1 + len(rows)), pa.int64()),
        "error": pa.nulls(len(rows), pa.string()),
        "raw": pa.nulls(len(rows), pa.string()),
    }
    for theirs, mine in used.items():
        column = rows[theirs]
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = pc.cast(column, kind.value_type)
        elif pa.types.is_timestamp(kind):
            micros = pc.cast(pc.cast(column, pa.timestamp("us", kind.tz), safe=False), pa.int64())
            column = pc.divide(pc.cast(micros, pa.float64()), 1e6)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            column = pa.array(
                [None if v is None else str(v) for v in column.to_pylist()], pa.string()
            )
        elif not (
            pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_string(kind)
        ):
            column = pc.cast(column, pa.string())
        columns[mine] = column
    return pa.table(columns)
