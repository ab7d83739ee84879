"""A linear program in process: HiGHS, which keeps its basis between solves.

The column generation solves the same program many times with more columns each time; glpsol
would start from nothing (`lp_outside` does that where highspy is missing). Columns and rows are
described the same way for `mip.py` (Pyomo), so that both can be compared on the same program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.effort import Effort, iterations_for, work_of_lp

__all__ = ["Column", "LpResult", "Program", "Simplex"]

INF = float("inf")
_DUAL, _PRIMAL = 1, 4
_LEAST, _MOST = 0.05, 1e4
"""Work for one solve: what is left, within these."""
_OPTIONS: dict[str, Any] = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
    # A basis to start from and presolve exclude each other.
    "presolve": "off",
    "solver": "simplex",
}


@dataclass(slots=True)
class Column:
    """A variable: what it costs, the rows it is in, its bounds, what it stands for."""

    cost: float
    rows: tuple[int, ...]
    values: tuple[float, ...]
    what: tuple[Any, ...]
    upper: float = INF
    lower: float = 0.0


@dataclass(slots=True)
class Program:
    """Rows with bounds and columns; grows, never shrinks."""

    row_keys: list[tuple[Any, ...]] = field(default_factory=list)
    row_low: list[float] = field(default_factory=list)
    row_high: list[float] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    row_of: dict[tuple[Any, ...], int] = field(default_factory=dict)
    known: dict[tuple[Any, ...], int] = field(default_factory=dict)
    """Where the column is that stands for something."""

    def row(self, key: tuple[Any, ...], low: float = 0.0, high: float = 0.0) -> int:
        """The row of that key, made with these bounds where it is new."""
        index = self.row_of.get(key)
        if index is None:
            index = len(self.row_keys)
            self.row_of[key] = index
            self.row_keys.append(key)
            self.row_low.append(low)
            self.row_high.append(high)
        return index

    def add(self, column: Column) -> bool:
        """Add a column unless one that stands for the same is there."""
        if column.what in self.known:
            return False
        self.known[column.what] = len(self.columns)
        self.columns.append(column)
        return True


@dataclass(slots=True)
class LpResult:
    """What one solve gave; `good` is False when the limits stopped it or it is infeasible."""

    good: bool
    cost: float
    x: npt.NDArray[np.float64]
    duals: npt.NDArray[np.float64]
    reduced: npt.NDArray[np.float64]


class Simplex:
    """A program inside HiGHS, on one thread; `sync` brings over what was added since."""

    def __init__(self, program: Program) -> None:
        import highspy

        self.highspy = highspy
        self.program = program
        self.rows = self.cols = 0
        status = highspy.HighsModelStatus
        self._ends = (
            status.kOptimal,
            status.kInfeasible,
            status.kUnbounded,
            status.kTimeLimit,
            status.kIterationLimit,
        )
        make: Any = highspy.Highs
        self.highs = make()
        for name, value in _OPTIONS.items():
            self.highs.setOptionValue(name, value)

    def close(self) -> None:
        """Give the memory back."""
        self.highs = None

    def sync_rows(self) -> None:
        """Bring new rows over, without the new columns that are in them."""
        self._add_rows(len(self.program.row_keys), {})

    def enter_row(self, row: int, entries: dict[int, float]) -> None:
        """Bring a new row over with its entries in the columns that are here."""
        self._add_rows(row, {})
        self._add_rows(row + 1, {c: v for c, v in entries.items() if c < self.cols})

    def _add_rows(self, until: int, entries: dict[int, float]) -> None:
        new = until - self.rows
        if new <= 0:
            return
        low = np.array(self.program.row_low[self.rows : until])
        high = np.array(self.program.row_high[self.rows : until])
        starts = np.zeros(new, np.int32)
        columns = np.fromiter(entries, np.int32, len(entries))
        values = np.fromiter(entries.values(), float, len(entries))
        self.highs.addRows(new, low, high, len(entries), starts, columns, values)
        self.rows = until

    def sync(self) -> None:
        """Bring new rows and columns over."""
        self.sync_rows()
        columns = self.program.columns[self.cols :]
        new = len(columns)
        if not new:
            return
        sizes = np.fromiter((len(column.rows) for column in columns), np.int32, new)
        starts = np.zeros(new, np.int32)
        np.cumsum(sizes[:-1], out=starts[1:])
        entries = int(sizes.sum())
        self.highs.addCols(
            new,
            np.fromiter((column.cost for column in columns), float, new),
            np.fromiter((column.lower for column in columns), float, new),
            np.fromiter((column.upper for column in columns), float, new),
            entries,
            starts,
            np.fromiter((row for column in columns for row in column.rows), np.int32, entries),
            np.fromiter((value for column in columns for value in column.values), float, entries),
        )
        self.cols += new

    def start_from(self, basis: Sequence[tuple[int, int]]) -> None:
        """Start with these columns basic, each instead of a row that it is in."""
        status = self.highspy.HighsBasisStatus
        columns, rows = [status.kLower] * self.cols, [status.kBasic] * self.rows
        for index, row in basis:
            columns[index] = status.kBasic
            rows[row] = status.kUpper if self.program.row_high[row] < INF else status.kLower
        first = self.highspy.HighsBasis()
        first.col_status, first.row_status, first.valid = columns, rows, True
        self.highs.setBasis(first)

    def set_column(self, index: int, low: float, high: float) -> None:
        """New bounds for a column."""
        self.highs.changeColBounds(index, low, high)

    def solve(
        self,
        effort: Effort | None = None,
        *,
        dual: bool = False,
        brief: bool = False,
        light: bool = False,
    ) -> LpResult:
        """Solve from the present basis; `brief` leaves the duals out, `light` all but them."""
        highs, effort = self.highs, effort or Effort(INF)
        highs.setOptionValue("simplex_strategy", _DUAL if dual else _PRIMAL)
        most = iterations_for(min(max(effort.left, _LEAST), _MOST), self.rows)
        highs.setOptionValue("simplex_iteration_limit", most)
        # HiGHS counts the time of all runs together.
        highs.setOptionValue("time_limit", highs.getRunTime() + max(0.05, effort.left_s))
        highs.run()
        if highs.getModelStatus() not in self._ends:
            # A basis that became singular: once more from nothing.
            highs.clearSolver()
            highs.run()
        status = highs.getModelStatus()
        good = status == self.highspy.HighsModelStatus.kOptimal
        if status == self.highspy.HighsModelStatus.kTimeLimit:
            effort.is_late(INF)
        iterations = highs.getInfo().simplex_iteration_count
        effort.spend(work_of_lp(max(0, iterations), self.rows, self.cols))
        solution, none = highs.getSolution(), np.zeros(0)
        self._solution = solution
        cost = highs.getInfo().objective_function_value
        x = none if light else np.array(solution.col_value)
        duals = none if brief else np.array(solution.row_dual)
        reduced = none if brief or light else np.array(solution.col_dual)
        return LpResult(good, cost, x, duals, reduced)

    def fill_values(self, result: LpResult) -> None:
        """The values that a light solve left out, as long as nothing was solved since."""
        result.x = np.array(self._solution.col_value)

    def fill(self, result: LpResult) -> None:
        """All that a light solve left out, as long as nothing was solved since."""
        if len(result.x) != self.cols:
            self.fill_values(result)
        result.reduced = np.array(self._solution.col_dual)
