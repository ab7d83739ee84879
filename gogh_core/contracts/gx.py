"""Great Expectations on one dataframe: expectations in, row numbers of what failed out.

Only this module knows Great Expectations, and it is imported when first needed (4 to 6 s). A first
pass asks for counts only; what failed is run again for the rows themselves, in slices where that
gives the same answer. Where thousands of rows failed, the parts are counted first: one that is over
its share is refused whole, so that a batch in which everything is wrong costs neither time nor
memory.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gogh_core.contracts.suites import Check
from gogh_core.errors import InvalidContract

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Outcome", "across_rows", "run_checks"]

_SLICE_ROWS = 50_000
_MANY_ROWS = 20_000
_COLUMNS_AT_ONCE = 4
# These compare rows with each other, so a slice would change their answer.
_ACROSS_ROWS = ("unique", "increasing", "decreasing")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one expectation found; `rows` are row ids, empty for one about the whole batch.

    `over` counts what failed in parts so bad that they are refused whole: their rows are not named.
    """

    success: bool
    failed: int
    rows: np.ndarray[tuple[int], np.dtype[np.int64]]
    observed: str | None
    over: Mapping[int, int] = field(default_factory=dict)


@cache
def _context() -> Any:
    """One ephemeral context for this process."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx

    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    context = gx.get_context(mode="ephemeral")
    quiet: Any = {"globally": False, "metric_calculations": False}
    context.variables.progress_bars = quiet
    return context


@cache
def _implementation(kind: str) -> Any:
    _context()
    from great_expectations.exceptions.exceptions import ExpectationNotFoundError
    from great_expectations.expectations.registry import get_expectation_impl

    try:
        return get_expectation_impl(kind)
    except ExpectationNotFoundError:
        return None


def _expectation(check: Check, key: int, where: str) -> Any:
    made = _implementation(check.type)
    if made is None:
        raise InvalidContract([f"line {check.line}: there is no {check.type}"], where=where)
    try:
        return made(**check.kwargs, meta={"key": key})
    except (TypeError, ValueError) as error:  # pydantic's ValidationError is a ValueError
        text = " ".join(str(error).split())
        raise InvalidContract([f"line {check.line}: {text}"], where=where) from error


def _validate(
    checks: Sequence[tuple[int, Any]], frame: pd.DataFrame, form: dict[str, Any]
) -> dict[int, Any]:
    """One validation, without a data source, which would hash the whole frame twice first."""
    context = _context()
    from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
    from great_expectations.validator.validator import Validator

    engine = PandasExecutionEngine(batch_data_dict={"batch": frame})
    validator = Validator(execution_engine=engine, data_context=context)
    results: Any = validator.graph_validate(
        configurations=[made.configuration for _, made in checks],
        runtime_configuration={"result_format": dict(form)},
    )
    return {int(result.expectation_config.meta["key"]): result for result in results}


def _counted(
    checks: Sequence[Check], made: Sequence[tuple[int, Any]], frame: pd.DataFrame
) -> dict[int, Any]:
    """How many rows fail each check."""
    counts: dict[int, Any] = {}
    for keys, names in _few_columns(checks):
        narrow = frame[[name for name in names if name in frame]] if names else frame
        counts |= _validate([made[key] for key in keys], narrow, _COUNTS)
    return counts


def _few_columns(checks: Sequence[Check]) -> list[tuple[list[int], list[str]]]:
    """Checks that are run together and the columns they see; none: they see the whole frame.

    Great Expectations copies every column of a frame for each check of one of them.
    """
    groups: list[tuple[list[int], list[str]]] = []
    filling: tuple[list[int], list[str]] | None = None
    for key, check in enumerate(checks):
        names = list(dict.fromkeys(("row_id", *check.columns))) if check.columns else []
        if not names or "ignore_row_if" in check.kwargs:  # those drop rows for all beside them
            groups.append(([key], names))
            continue
        if filling is None or len({*filling[1], *names}) > _COLUMNS_AT_ONCE:
            filling = ([], [])
            groups.append(filling)
        filling[0].append(key)
        filling[1].extend(name for name in names if name not in filling[1])
    return groups


def _raised(result: Any) -> str | None:
    info = result.exception_info or {}
    if "raised_exception" in info:
        return str(info["exception_message"]) if info["raised_exception"] else None
    for entry in info.values():
        if isinstance(entry, dict) and entry.get("raised_exception"):
            return str(entry.get("exception_message"))
    return None


def run_checks(
    checks: Sequence[Check],
    frame: pd.DataFrame,
    *,
    where: str,
    parts: np.ndarray[tuple[int], np.dtype[np.int32]] | None = None,
    allowed_rows: int = 0,
) -> list[Outcome]:
    """The outcome of each check on the frame, which has a column `row_id`."""
    made = [(key, _expectation(check, key, where)) for key, check in enumerate(checks)]
    if not made or frame.empty:
        return [Outcome(True, 0, np.array([], np.int64), None) for _ in checks]
    counts = _counted(checks, made, frame)
    outcomes: list[Outcome] = []
    for key, check in enumerate(checks):
        result = counts[key]
        error = _raised(result)
        if error is not None:
            raise InvalidContract(
                [f"line {check.line}: {check.type} could not be run ({error})"], where=where
            )
        failed = int(result.result.get("unexpected_count", 0) or 0)
        observed = result.result.get("observed_value")
        rows = np.array([], np.int64)
        over: dict[int, int] = {}
        if failed and check.level == "refuse":
            needed = frame[["row_id", *dict.fromkeys(check.columns)]]
            if failed > _MANY_ROWS and parts is not None and not across_rows(check):
                over = _over(check, made[key], needed, parts, allowed_rows)
                needed = needed[~np.isin(parts, list(over))] if over else needed
            rows = _rows(check, made[key], needed)
        seen = None if observed is None else str(observed)
        outcomes.append(Outcome(bool(result.success), failed, rows, seen, over))
    return outcomes


_COUNTS = {"result_format": "BASIC", "partial_unexpected_count": 0}


def across_rows(check: Check) -> bool:
    """Whether it compares rows with each other."""
    return any(word in check.type for word in _ACROSS_ROWS)


def _over(
    check: Check,
    made: tuple[int, Any],
    frame: pd.DataFrame,
    parts: np.ndarray[tuple[int], np.dtype[np.int32]],
    allowed_rows: int,
) -> dict[int, int]:
    """Large parts of which more failed than allowed, with how many."""
    sizes = np.bincount(parts)
    found: dict[int, int] = {}
    for part in np.flatnonzero(sizes >= 1000):
        result = _validate([made], frame[parts == part], _COUNTS)[made[0]]
        failed = int(result.result.get("unexpected_count", 0) or 0)
        if failed > allowed_rows and failed > check.allowed_share * sizes[part]:
            found[int(part)] = failed
    return found


def _rows(
    check: Check, made: tuple[int, Any], frame: pd.DataFrame
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    form = {
        "result_format": "COMPLETE",
        "unexpected_index_column_names": ["row_id"],
        "include_unexpected_rows": False,
    }
    step = len(frame) if across_rows(check) else _SLICE_ROWS
    found: list[int] = []
    for start in range(0, len(frame), max(step, 1)):
        result = _validate([made], frame.iloc[start : start + step], form)[made[0]]
        found.extend(int(entry["row_id"]) for entry in result.result["unexpected_index_list"] or [])
    return np.array(sorted(set(found)), np.int64)
