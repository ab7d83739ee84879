"""The linear programs where highspy is not installed: Pyomo and glpsol, from nothing each time.

`Outside` is asked like `lp.Simplex`. It is slower, so that fewer columns are found in the time; a
plan that was made with it says so. Where glpsol is missing too, nothing is solved.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gogh_core.allocation.effort import Effort, work_of_mip
from gogh_core.allocation.lp import LpResult, Program, Simplex
from gogh_core.allocation.mip import Part, available, solve_lp
from gogh_core.errors import SolverFailed

__all__ = ["Outside", "open_lp"]

_NONE = np.zeros(0)


def open_lp(program: Program) -> Simplex | Outside:
    """The program in HiGHS where it is installed."""
    return Simplex(program) if available("highs") else Outside(program)


class Outside:
    """A program that is written out for glpsol each time it is solved."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.rows = self.cols = 0

    def close(self) -> None:
        """Nothing is held."""

    def sync_rows(self) -> None:
        """Take the new rows in, without the new columns."""
        self.rows = len(self.program.row_keys)

    def enter_row(self, row: int, entries: dict[int, float]) -> None:
        """Take a new row in; the program's columns have its entries."""
        self.rows = max(self.rows, row + 1)

    def sync(self) -> None:
        """Take new rows and columns in."""
        self.sync_rows()
        self.cols = len(self.program.columns)

    def start_from(self, basis: Sequence[tuple[int, int]]) -> None:
        """Nothing: glpsol begins with its own basis."""

    def set_column(self, index: int, low: float, high: float) -> None:
        """Nothing: the program's column has these bounds."""

    def solve(
        self,
        effort: Effort | None = None,
        *,
        dual: bool = False,
        brief: bool = False,
        light: bool = False,
    ) -> LpResult:
        """Solve from nothing; all is read at once, so `brief` and `light` change nothing."""
        effort = effort or Effort(3600.0, time_limit_s=3600.0)
        effort.spend(work_of_mip(self.cols, "glpk"))
        part = Part(self.program, range(self.cols), {}, {}, integer=False)
        try:
            found = solve_lp(part, time_s=min(max(0.05, effort.left_s), 3600.0))
        except SolverFailed:
            found = None
        if found is None:
            return LpResult(False, 0.0, _NONE, _NONE, _NONE)
        values, prices = found
        columns = self.program.columns[: self.cols]
        x = np.array([values[index] for index in range(self.cols)])
        duals = np.array([prices.get(row, 0.0) for row in range(self.rows)])
        reduced = np.array(
            [
                c.cost - sum(v * duals[row] for row, v in zip(c.rows, c.values, strict=True))
                for c in columns
            ]
        )
        cost = float(sum(c.cost * value for c, value in zip(columns, x, strict=True)))
        return LpResult(True, cost, x, duals, reduced)

    def fill_values(self, result: LpResult) -> None:
        """Nothing was left out."""

    def fill(self, result: LpResult) -> None:
        """Nothing was left out."""
