"""The quarantine: what is in it, and how it leaves: repaired and readmitted, or dropped.

A readmitted row goes through its contract again, with the values a person set; what still fails
stays held. Dropping settles a row without using it; nothing is ever deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from gogh_core.contracts import check_batch, load_suites
from gogh_core.contracts import record as record_run
from gogh_core.errors import InvalidInput
from gogh_core.settings import Settings
from gogh_core.store import Store, fetch
from gogh_core.telemetry.observe import observe
from gogh_core.telemetry.parse import SPILL, Parser, Piece
from gogh_core.telemetry.shapes import SHAPES
from gogh_core.telemetry.take import fill_temporary, with_gpu_types

__all__ = ["Readmission", "drop", "held", "readmit", "show"]

_LETTERS = 6  # of an id are enough, where they fit one row only
_NEVER_LATE_S = 1e9  # what a person readmits is taken, however old


@dataclass(frozen=True, slots=True)
class Readmission:
    """What became of the rows that were to be readmitted."""

    readmitted: tuple[str, ...]
    still_held: Mapping[str, str]
    """Id -> why it failed again."""
    observations: int


def held(
    store: Store,
    *,
    table: str | None = None,
    source: str | None = None,
    batch: str | None = None,
    status: str = "held",
    limit: int = 100,
) -> list[dict[str, Any]]:
    """Rows of the quarantine, newest first; each says how many there are in all (`total`)."""
    wanted = {"table": table, "source": source, "batch": batch, "status": status, "limit": limit}
    with store.read() as connection:
        return list(fetch(connection, "telemetry_quarantine", **wanted).to_pylist())


def show(store: Store, quarantine_id: str) -> dict[str, Any]:
    """One row with everything known of it; the beginning of its id is enough."""
    return _chosen(store, [quarantine_id])[0]


def _chosen(
    store: Store, ids: Sequence[str], source: str | None = None, *, settled: bool = True
) -> list[dict[str, Any]]:
    """The row of each id, and all that a source has there; every id that fits none is told."""
    with store.read() as connection:
        found = fetch(connection, "telemetry_quarantined", ids=list(ids), source=source)
    rows: list[dict[str, Any]] = found.to_pylist()
    faults = []
    for wanted in ids:
        fits = [row for row in rows if row["quarantine_id"].startswith(wanted)]
        if len(wanted) < _LETTERS:
            faults.append(f"{wanted!r} is shorter than {_LETTERS} letters")
        elif len(fits) != 1:
            faults.append(f"{wanted!r} fits {len(fits) or 'no'} rows")
        elif not settled and fits[0]["status"] != "held":
            faults.append(f"{wanted!r} is {fits[0]['status']} already")
    if source is not None and all(row["source"] != source for row in rows):
        faults.append(f"nothing of {source} is held")
    if faults or not rows:
        what = "; ".join(faults) or "no row is named"
        raise InvalidInput(what, where="quarantine", todo="`gogh quarantine list` shows the ids")
    return rows


def drop(store: Store, ids: Sequence[str], *, source: str | None = None, now: datetime) -> int:
    """Settle rows without using them; how many."""
    rows = _chosen(store, ids, source, settled=False)
    chosen = [row["quarantine_id"] for row in rows]
    with store.write() as connection:
        fetch(connection, "telemetry_settle", ids=chosen, status="dropped", now=now)
    return len(rows)


def readmit(
    store: Store,
    settings: Settings,
    ids: Sequence[str],
    *,
    source: str | None = None,
    now: datetime,
    repaired: Mapping[str, str] | None = None,
) -> Readmission:
    """Run the contract again on held rows, with repaired values, and take what is clean."""
    rows = _chosen(store, ids, source, settled=False)
    tables = sorted({row["table_name"] for row in rows})
    for table in tables:
        if table not in SHAPES:
            raise InvalidInput(
                f"a row of {table} is not readmitted by hand",
                todo="it is checked again with the next records of the cluster manager",
            )
    done: list[str] = []
    failed: dict[str, str] = {}
    for table in tables:
        own = [row for row in rows if row["table_name"] == table]
        good, bad = _readmit_table(store, settings, table, own, dict(repaired or {}), now=now)
        done += good
        failed |= bad
    with store.write() as connection:
        observations = observe(connection, settings, now=now)
    return Readmission(tuple(done), failed, observations)


def _readmit_table(
    store: Store,
    settings: Settings,
    table: str,
    rows: Sequence[Mapping[str, Any]],
    repaired: Mapping[str, str],
    *,
    now: datetime,
) -> tuple[list[str], dict[str, str]]:
    unknown = sorted(set(repaired) - set(SHAPES[table].columns))
    if unknown:
        raise InvalidInput(f"{table} has no column {unknown[0]!r}", where="--set")
    parser = Parser(settings.home / SPILL)
    try:
        lines = pa.table(
            {
                "line": pa.array(range(len(rows)), pa.int64()),
                "error": pa.nulls(len(rows), pa.string()),
                "raw": pa.array([_merged(row["row_json"], repaired) for row in rows], pa.string()),
            }
        )
        piece = Piece("quarantine", table, lines, "", "", "", form="lines")
        values = parser.rows([piece])
    finally:
        parser.close()
    # The row's number is its place in `rows`: the parser keeps the order of lines.
    values = values.append_column("row_id", values["line"])
    values = with_gpu_types(values)
    suite = load_suites(settings)[table]
    ids = [str(row["quarantine_id"]) for row in rows]
    digest = hashlib.sha256(json.dumps([ids, sorted(repaired.items()), now.isoformat()]).encode())
    batch_id = digest.hexdigest()[:24]
    with store.write() as connection:
        verdict = check_batch(connection, suite, values, now=now)
        parts = {
            "part": pa.array([0], pa.int32()),
            "batch_id": [batch_id],
            "source": ["quarantine"],
            "range_from": [ids[0]],
            "range_to": [ids[-1]],
            "checksum": [batch_id],
            "detail": ["readmitted by hand"],
        }
        connection.register("parts", pa.table(parts))
        fill_temporary(connection, table, verdict, late_s=_NEVER_LATE_S)
        fates = {row["row_id"]: row for row in fetch(connection, "telemetry_fates_of").to_pylist()}
        fetch(connection, f"telemetry_store_{table}", window_s=settings.cycle.window_s)
        fetch(connection, "telemetry_ledger", table=table, now=now, warned=False)
        record_run(connection, suite, verdict, run_id=batch_id, sources=["quarantine"], now=now)
        good = [ids[n] for n, row in fates.items() if row["fate"] != "quarantined"]
        fetch(connection, "telemetry_settle", ids=good, status="readmitted", now=now)
    bad = {ids[n]: str(row["reason"]) for n, row in fates.items() if row["fate"] == "quarantined"}
    return good, bad


def _merged(text: str, repaired: Mapping[str, str]) -> str:
    """The row as JSON with the repaired values; a line that was no JSON has only those."""
    try:
        row = json.loads(text)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        return json.dumps(dict(repaired)) if repaired else text
    return json.dumps({**row, **repaired})
