"""One batch, one transaction: ledger, clean rows, quarantine, late rows and positions together.

`take` gets pieces of one table, checks them against the contract, splits and stores them. Either
all of it is in the database or nothing; what another process has taken meanwhile is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gogh_core import hardware
from gogh_core.contracts import Suite, Verdict, check_batch
from gogh_core.contracts import record as record_run
from gogh_core.store import fetch, fill, run, statement
from gogh_core.telemetry.early import keep_early, split_early
from gogh_core.telemetry.parse import Piece
from gogh_core.telemetry.report import Counts
from gogh_core.telemetry.spool import Position

__all__ = [
    "Taken",
    "batch_id",
    "fill_temporary",
    "store_positions",
    "take",
    "with_gpu_types",
    "without",
]


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a batch."""

    counts: tuple[tuple[str, Counts], ...]
    """Source and counts of each piece that was taken."""
    refused: tuple[str, ...]
    warnings: tuple[str, ...]
    positions: tuple[Position, ...]
    results: int


def batch_id(piece: Piece) -> str:
    """The identity of a piece: source, range and content."""
    text = f"{piece.table}|{piece.source}|{piece.range_from}|{piece.range_to}|{piece.checksum}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def take(
    connection: duckdb.DuckDBPyConnection,
    suite: Suite,
    pieces: Sequence[Piece],
    rows: pa.Table,
    *,
    known: Mapping[str, Position],
    now: datetime,
    late_s: float,
    period_s: float,
    window_s: int,
    early_s: float = 0.0,
) -> Taken:
    """Check, split and store the pieces in the caller's transaction."""
    moved = _moved(connection, pieces, known)
    if moved:
        kept = [part for part, piece in enumerate(pieces) if part not in moved]
        if not kept:
            return Taken((), (), (), (), 0)
        pieces = [pieces[part] for part in kept]
        rows = without(rows, kept)
    table = pieces[0].table
    parts = _parts(connection, pieces)
    rows = _numbered(rows)
    present, early = split_early(rows, now, early_s)
    verdict = check_batch(connection, suite, present, now=now, period_s=period_s)
    fill_temporary(connection, table, verdict, late_s=late_s)
    keep_early(connection, rows, early)
    fetch(connection, "telemetry_aside", table=table, now=now)
    fetch(connection, f"telemetry_store_{table}", window_s=window_s)
    warnings = verdict.warnings
    counted = fetch(connection, "telemetry_ledger", table=table, now=now, warned=bool(warnings))
    run_id = str(parts["batch_id"][0].as_py())
    sources = [piece.source for piece in pieces]
    record_run(connection, suite, verdict, run_id=run_id, sources=sources, now=now)
    positions = {piece.after.path: piece.after for piece in pieces if piece.after}
    store_positions(connection, list(positions.values()), now)
    counts = [
        (pieces[row["part"]].source, Counts(**{k: v for k, v in row.items() if k != "part"}))
        for row in counted.to_pylist()
    ]
    return Taken(
        tuple(counts),
        tuple(f"{pieces[part].source}: {why}" for part, why in sorted(verdict.refused.items())),
        warnings,
        tuple(positions.values()),
        len(verdict.results),
    )


def fill_temporary(
    connection: duckdb.DuckDBPyConnection, table: str, verdict: Verdict, *, late_s: float
) -> None:
    """Make `split`: the fate of each row of the checked batch."""
    connection.register("failures", verdict.failures)
    connection.register(
        "refused",
        pa.table(
            {
                "part": pa.array(list(verdict.refused), pa.int32()),
                "reason": pa.array(list(verdict.refused.values()), pa.string()),
            }
        ),
    )
    sql = statement(f"telemetry_fates_{table}")
    if "{table}" in sql:
        sql = fill(sql, table=_stored(connection, table))
    connection.register("fates", run(connection, sql, {"late_s": late_s}))
    fetch(connection, "telemetry_split")


def _stored(connection: duckdb.DuckDBPyConnection, table: str) -> str:
    """Where copies are looked for: with Parquet where the batch reaches back that far.

    Rows of a server that was off, or of a job that has ended, are not late, however old they are.
    """
    aged = fetch(connection, "telemetry_in_parquet", table=table)["found"][0].as_py()
    return f"{table}_all" if aged else table


def store_positions(
    connection: duckdb.DuckDBPyConnection, positions: Sequence[Position], now: datetime
) -> None:
    """Remember how far files have been taken in."""
    if not positions:
        return
    names = [name for name in Position.__slots__ if name != "updated_s"]
    columns = {name: [getattr(p, name) for p in positions] for name in names}
    types = {"header": pa.string(), "anchor": pa.float64(), "detail": pa.string()}
    table = pa.table({name: pa.array(cells, types.get(name)) for name, cells in columns.items()})
    connection.register("positions", table)
    fetch(connection, "telemetry_positions", now=now)
    connection.unregister("positions")


def _moved(
    connection: duckdb.DuckDBPyConnection, pieces: Sequence[Piece], known: Mapping[str, Position]
) -> set[int]:
    """Parts of files that another process has taken further since we looked."""
    paths = sorted({piece.after.path for piece in pieces if piece.after})
    if not paths:
        return set()
    before = [known.get(path) for path in paths]
    expected = pa.table(
        {
            "path": pa.array(paths, pa.string()),
            "position": pa.array([-1 if p is None else p.position for p in before], pa.int64()),
            "head_sha256": pa.array(["" if p is None else p.head_sha256 for p in before]),
        }
    )
    connection.register("expected", expected)
    moved = set(fetch(connection, "telemetry_moved_files")["path"].to_pylist())
    return {n for n, piece in enumerate(pieces) if piece.after and piece.after.path in moved}


def without(rows: pa.Table, kept: Sequence[int]) -> pa.Table:
    """The rows of the kept parts, which are counted anew."""
    number = {part: index for index, part in enumerate(kept)}
    parts = rows["part"].to_pylist()
    rows = rows.filter(pa.array([part in number for part in parts]))
    renamed = pa.array([number[part] for part in rows["part"].to_pylist()], pa.int32())
    return rows.set_column(rows.column_names.index("part"), "part", renamed)


def _parts(connection: duckdb.DuckDBPyConnection, pieces: Sequence[Piece]) -> pa.Table:
    ids = [batch_id(piece) for piece in pieces]
    table = pa.table(
        {
            "part": pa.array(range(len(pieces)), pa.int32()),
            "batch_id": ids,
            "source": [piece.source for piece in pieces],
            "range_from": [piece.range_from for piece in pieces],
            "range_to": [piece.range_to for piece in pieces],
            "checksum": [piece.checksum for piece in pieces],
            "detail": pa.array(["; ".join(piece.notes) or None for piece in pieces], pa.string()),
        }
    )
    connection.register("parts", table)
    taken = set(fetch(connection, "telemetry_known_batches")["batch_id"].to_pylist())
    if taken:  # the same content again, after the file was replaced in between
        fresh = [_unused(first, taken) for first in ids]
        table = table.set_column(1, "batch_id", pa.array(fresh))
        connection.register("parts", table)
    return table


def _unused(first: str, taken: set[str]) -> str:
    """The id, or the first of `id-2`, `id-3`, ... that is not in the ledger."""
    name, number = first, 1
    while name in taken:
        number += 1
        name = f"{first}-{number}"
    return name


def _numbered(rows: pa.Table) -> pa.Table:
    """The rows with `row_id`, and GPU types by our names."""
    rows = rows.append_column("row_id", pa.array(np.arange(len(rows)), pa.int64()))
    return with_gpu_types(rows)


def with_gpu_types(rows: pa.Table) -> pa.Table:
    """The rows with GPU types by our names."""
    if "gpu_type" not in rows.column_names:
        return rows
    index = rows.column_names.index("gpu_type")
    return rows.set_column(index, "gpu_type", _canonical(rows["gpu_type"]))


def _canonical(names: pa.ChunkedArray) -> pa.Array:
    """GPU types as NVML, DCGM or Slurm spell them, by our names; unknown ones stay."""
    encoded = pc.dictionary_encode(names).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = (
            pa.concat_arrays(encoded.chunks) if encoded.num_chunks else pa.array([], names.type)
        )
    if not pa.types.is_dictionary(encoded.type):
        return encoded
    ours = [
        name if (found := hardware.find(name)) is None else found.name
        for name in encoded.dictionary.to_pylist()
    ]
    return pc.take(pa.array(ours, pa.string()), encoded.indices)
