"""One batch against its contract: helper columns by a query, expectations by Great Expectations.

`check_batch` leaves `checked` (the batch with its helper columns) registered on the connection,
for whoever stores the clean rows, and gives a `Verdict`: which rows are bad and why, which parts of
the batch (a part is what one source brought) are refused, what is only warned of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gogh_core.contracts.gx import Outcome, run_checks
from gogh_core.contracts.suites import Check, Suite
from gogh_core.errors import InvalidContract
from gogh_core.hardware import GPU_TYPES

_Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]

_Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

# Helper columns that tell of a row what another row of the batch made of it.
_BESIDE = frozenset({"key_taken", "energy_step_j", "energy_allowed_j", "steps_gained"})
_ROUNDS = 4  # each without the rows that failed in those before

__all__ = ["Result", "Verdict", "as_batch", "check_batch"]


@dataclass(frozen=True, slots=True)
class Result:
    """What one expectation said of the whole batch."""

    check: Check
    outcome: Outcome
    rows: int

    @property
    def share(self) -> float:
        """Share of the rows that failed."""
        return self.outcome.failed / self.rows if self.rows else 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a batch."""

    results: tuple[Result, ...]
    failures: pa.Table
    """row_id, rank (order in the suite), expectation, column_name, value, reason."""
    refused: Mapping[int, str]
    """Part -> why it is refused as a whole."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What failed at level `warn`."""
        return tuple(
            f"{r.check.says} ({r.outcome.failed or r.outcome.observed})"
            for r in self.results
            if r.check.level == "warn" and not r.outcome.success
        )


def _gpu_types() -> pa.Table:
    types = list(GPU_TYPES.values())
    return pa.table(
        {
            "gpu_type": [gpu.name for gpu in types],
            "memory_mb": [gpu.memory_gb * 1024.0 for gpu in types],
            "idle_w": [float(gpu.idle_w) for gpu in types],
            "max_w": [float(gpu.max_w) for gpu in types],
            "peak_flops": [
                1e12 * max(gpu.fp32_tflops, gpu.tf32_tflops, gpu.fp16_tflops) for gpu in types
            ],
        }
    )


def as_batch(rows: pa.Table) -> pa.Table:
    """Rows that come from no file, as one part: numbered, and all of them could be read."""
    count = len(rows)
    for name, column in (
        ("line", pa.array(np.arange(1, count + 1), pa.int64())),
        ("parse_error", pa.nulls(count, pa.string())),
        ("raw", pa.nulls(count, pa.string())),
        ("part", pa.array(np.zeros(count, np.int32))),
        ("row_id", pa.array(np.arange(count), pa.int64())),
    ):
        if name not in rows.column_names:
            rows = rows.append_column(name, column)
    return rows


def check_batch(
    connection: duckdb.DuckDBPyConnection,
    suite: Suite,
    rows: pa.Table,
    *,
    now: datetime,
    period_s: float = 1.0,
) -> Verdict:
    """Check rows (with `row_id`, `part`, `line`, `parse_error`) in the caller's transaction.

    A row is judged beside rows that are stored, or will be: where rows were judged beside others
    that are refused (as their copies, say), what is left is checked again without those.
    """
    verdict, left = _once(connection, suite, rows, now=now, period_s=period_s)
    results = verdict.results
    asides, failures, refused = list[pa.Table](), list[pa.Table](), dict[int, str]()
    for _ in range(_ROUNDS):
        firm = _refused(suite, left, tuple(r for r in verdict.results if not _is_beside(r.check)))
        out = _out(left, verdict, firm)
        if not out.any() or out.all() or not (firm or _depends(left, out, verdict)):
            break
        refused |= firm
        asides.append(left.filter(pa.array(out)))
        failures.append(_only(verdict.failures, np.asarray(left["row_id"])[out]))
        kept = pa.array(np.asarray(left["row_id"])[~out])
        again = rows.filter(pc.is_in(rows["row_id"], kept))
        verdict, left = _once(connection, suite, again, now=now, period_s=period_s)
    if asides:
        checked = _by_id(pa.concat_tables([left, *asides], promote_options="permissive"))
        connection.register("batch", rows)
        connection.register("checked", checked)
    failed = pa.concat_tables([*failures, verdict.failures])
    return Verdict(results, failed, refused | dict(verdict.refused))


def _once(
    connection: duckdb.DuckDBPyConnection,
    suite: Suite,
    rows: pa.Table,
    *,
    now: datetime,
    period_s: float,
) -> tuple[Verdict, pa.Table]:
    """All rows beside each other; the verdict and the rows with their helper columns."""
    connection.register("batch", rows)
    connection.register("gpu_types", _gpu_types())
    facts = {"now": pa.array([now], pa.timestamp("us", "UTC")), "period_s": [float(period_s)]}
    connection.register("facts", pa.table(facts))
    checked = _with_helpers(connection, suite, rows)
    _need_columns(suite, set(checked.column_names))
    connection.register("checked", checked)
    used = dict.fromkeys(name for check in suite.checks for name in check.columns)
    frame = checked.select(
        list(dict.fromkeys(("row_id", *(name for name in used if name in checked.column_names))))
    ).to_pandas(split_blocks=True)
    outcomes = run_checks(
        suite.checks,
        frame,
        where=suite.where,
        parts=np.asarray(checked["part"]),
        allowed_rows=suite.allowed_rows,
    )
    results = tuple(
        Result(check, outcome, len(rows))
        for check, outcome in zip(suite.checks, outcomes, strict=True)
    )
    verdict = Verdict(results, _failures(checked, results), _refused(suite, checked, results))
    return verdict, checked


def _is_beside(check: Check) -> bool:
    return not _BESIDE.isdisjoint(check.columns)


def _out(checked: pa.Table, verdict: Verdict, refused: Mapping[int, str]) -> _Mask:
    """Rows that will not be stored whatever the others are."""
    parts, ids = np.asarray(checked["part"]), np.asarray(checked["row_id"])
    out = np.isin(parts, list(refused))
    for result in verdict.results:
        if result.check.level == "refuse" and not _is_beside(result.check):
            out |= np.isin(ids, result.outcome.rows)
    return out


def _depends(checked: pa.Table, out: _Mask, verdict: Verdict) -> bool:
    """Whether a row that is left may have been judged by one that is out."""
    ids = np.asarray(checked["row_id"])
    beside = np.zeros(len(ids), bool)
    if "is_copy" in checked.column_names:
        beside = checked["is_copy"].to_numpy(zero_copy_only=False).astype(bool)
    for result in verdict.results:
        if result.check.level == "refuse" and _is_beside(result.check):
            beside = beside | np.isin(ids, result.outcome.rows)
    return bool((beside & ~out).any())


def _only(failures: pa.Table, ids: _Numbers) -> pa.Table:
    return failures.filter(pc.is_in(failures["row_id"], pa.array(ids)))


def _with_helpers(connection: duckdb.DuckDBPyConnection, suite: Suite, rows: pa.Table) -> pa.Table:
    """The registered batch by `row_id`, with the columns its helper query adds or replaces."""
    try:
        added = connection.sql(suite.helpers).to_arrow_table()
    except duckdb.Error as error:
        line = str(error).strip().splitlines()[0]
        raise InvalidContract([f"its helper query fails: {line}"], where=suite.where) from error
    if "row_id" not in added.column_names:
        raise InvalidContract(["its helper query has no row_id"], where=suite.where)
    if len(added) != len(rows):
        raise InvalidContract(
            [f"its helper query makes {len(added)} rows of {len(rows)}"], where=suite.where
        )
    rows, added = _by_id(rows), _by_id(added)
    if not added["row_id"].equals(rows["row_id"]):
        raise InvalidContract(["its helper query gives a row twice"], where=suite.where)
    return pa.table(
        dict(zip(rows.column_names, rows.columns, strict=True))
        | dict(zip(added.column_names, added.columns, strict=True))
    )


def _by_id(rows: pa.Table) -> pa.Table:
    """The rows in the order of their ids, each column in one piece, as pandas wants them.

    Column by column: memory that was never touched costs more than the copying.
    """
    ids = np.asarray(rows["row_id"])
    order = None if (ids[1:] > ids[:-1]).all() else pa.array(_order(ids))
    return pa.table({name: _ordered(rows[name], order) for name in rows.column_names})


def _ordered(column: pa.ChunkedArray, order: pa.Array | None) -> pa.Array:
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return whole if order is None else whole.take(order)


def _order(ids: _Numbers) -> _Numbers:
    """Where each id is, from the lowest; without sorting where they are 0, 1, 2, ..."""
    count = len(ids)
    if ids.min() == 0 and ids.max() == count - 1:
        places = np.full(count, -1, np.int64)
        places[ids] = np.arange(count)
        if (places >= 0).all():
            return places
    return np.argsort(ids)


def _places(checked: pa.Table, found: _Numbers) -> _Numbers:
    """Where the rows of these ids are."""
    return np.searchsorted(np.asarray(checked["row_id"]), found)


def _need_columns(suite: Suite, known: set[str]) -> None:
    faults = [
        f"line {check.line}: there is no column {name!r}"
        for check in suite.checks
        for name in check.columns
        if name not in known and check.type != "expect_column_to_exist"
    ]
    if faults:
        todo = f"known: {', '.join(sorted(known))}"
        raise InvalidContract(faults, where=suite.where, todo=todo)


def _failures(checked: pa.Table, results: tuple[Result, ...]) -> pa.Table:
    """Every (bad row, expectation) at level `refuse`, with the value that failed."""
    ids: list[_Numbers] = []
    columns: dict[str, list[str | None]] = {
        name: [] for name in ("expectation", "column_name", "value", "reason")
    }
    ranks: list[int] = []
    for rank, result in enumerate(results):
        found = result.outcome.rows
        if result.check.level != "refuse" or not len(found):
            continue
        ids.append(found)
        ranks += [rank] * len(found)
        columns["expectation"] += [result.check.type] * len(found)
        columns["column_name"] += [result.check.column] * len(found)
        columns["reason"] += [result.check.says] * len(found)
        column = result.check.column
        if column is not None and column in checked.column_names:
            values = pc.take(checked[column], pa.array(_places(checked, found)))
            columns["value"] += [None if v is None else str(v) for v in values.to_pylist()]
        else:
            columns["value"] += [None] * len(found)
    return pa.table(
        {
            "row_id": pa.array(np.concatenate(ids) if ids else [], pa.int64()),
            "rank": pa.array(ranks, pa.int32()),
            **{name: pa.array(values, pa.string()) for name, values in columns.items()},
        }
    )


def _refused(suite: Suite, checked: pa.Table, results: tuple[Result, ...]) -> dict[int, str]:
    """Parts of which more rows failed than allowed, or all parts when the batch itself failed."""
    refused: dict[int, str] = {}
    parts = np.asarray(checked["part"])
    if not len(parts):
        return refused
    total = np.bincount(parts)
    for result in results:
        check, outcome = result.check, result.outcome
        if check.level != "refuse":
            continue
        if not outcome.success and not outcome.failed:
            for part in np.unique(parts):
                refused.setdefault(int(part), f"{check.says} ({outcome.observed})")
            continue
        if not outcome.failed:
            continue
        bad = np.bincount(parts[_places(checked, outcome.rows)], minlength=len(total))
        for part, failed in outcome.over.items():
            bad[part] = failed
        over = (bad > suite.allowed_rows) & (bad > check.allowed_share * total)
        for part in np.flatnonzero(over):
            refused.setdefault(
                int(part),
                f"{bad[part]} of {total[part]} rows fail '{check.says}'; "
                f"{check.allowed_share:.0%} are allowed",
            )
    return refused
