"""A linear program in process: GLPK through swiglpk, which keeps its basis between solves.

The column generation solves the same program many times with more columns each time; glpsol
would start from nothing. `Columns` and rows are described the same way for `mip.py` (Pyomo), so
that both can be compared on the same program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Column", "Glpk", "LpResult", "Program"]

INF = float("inf")


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


class Glpk:
    """A program inside GLPK; `sync` brings over what was added since."""

    def __init__(self, program: Program) -> None:
        import swiglpk as glp

        self.glp = glp
        self.program = program
        self.lp = glp.glp_create_prob()
        self.rows = self.cols = 0
        glp.glp_term_out(glp.GLP_OFF)
        self.param = glp.glp_smcp()
        glp.glp_init_smcp(self.param)
        self.param.msg_lev = glp.GLP_MSG_OFF
        self.param.presolve = glp.GLP_OFF

    def close(self) -> None:
        """Give the memory back."""
        if self.lp is not None:
            self.glp.glp_delete_prob(self.lp)
            self.lp = None

    def _bounds(self, low: float, high: float) -> tuple[int, float, float]:
        glp = self.glp
        if low == high:
            return glp.GLP_FX, low, high
        if low == -INF:
            return (glp.GLP_FR, 0.0, 0.0) if high == INF else (glp.GLP_UP, 0.0, high)
        return (glp.GLP_LO, low, 0.0) if high == INF else (glp.GLP_DB, low, high)

    def sync_rows(self) -> None:
        """Bring new rows over, without the new columns that are in them."""
        glp, program = self.glp, self.program
        new_rows = len(program.row_keys) - self.rows
        if new_rows > 0:
            first = glp.glp_add_rows(self.lp, new_rows)
            for at in range(new_rows):
                index = self.rows + at
                bounds = self._bounds(program.row_low[index], program.row_high[index])
                glp.glp_set_row_bnds(self.lp, first + at, *bounds)
            self.rows += new_rows

    def sync(self) -> None:
        """Bring new rows and columns over."""
        self.sync_rows()
        glp, program = self.glp, self.program
        new_cols = len(program.columns) - self.cols
        if new_cols > 0:
            first = glp.glp_add_cols(self.lp, new_cols)
            longest = max(len(c.rows) for c in program.columns[self.cols :])
            index_array, value_array = glp.intArray(longest + 1), glp.doubleArray(longest + 1)
            for at in range(new_cols):
                column = program.columns[self.cols + at]
                glp.glp_set_col_bnds(self.lp, first + at, *self._bounds(column.lower, column.upper))
                glp.glp_set_obj_coef(self.lp, first + at, column.cost)
                for i, (row, value) in enumerate(zip(column.rows, column.values, strict=True)):
                    index_array[i + 1] = row + 1
                    value_array[i + 1] = value
                glp.glp_set_mat_col(self.lp, first + at, len(column.rows), index_array, value_array)
            self.cols += new_cols

    def set_matrix_row(self, row: int, entries: dict[int, float]) -> None:
        """Entries of a row in the columns that are here; others bring theirs along."""
        glp = self.glp
        entries = {column: value for column, value in entries.items() if column < self.cols}
        index_array, value_array = glp.intArray(len(entries) + 1), glp.doubleArray(len(entries) + 1)
        for i, (column, value) in enumerate(entries.items()):
            index_array[i + 1] = column + 1
            value_array[i + 1] = value
        glp.glp_set_mat_row(self.lp, row + 1, len(entries), index_array, value_array)

    def start_from(self, basis: Sequence[tuple[int, int]]) -> None:
        """Start with these columns basic, each instead of a row that it is in."""
        glp = self.glp
        glp.glp_std_basis(self.lp)
        for index, row in basis:
            low, high = self.program.row_low[row], self.program.row_high[row]
            tight = glp.GLP_NS if low == high else glp.GLP_NL if high == INF else glp.GLP_NU
            glp.glp_set_col_stat(self.lp, index + 1, glp.GLP_BS)
            glp.glp_set_row_stat(self.lp, row + 1, tight)

    def set_column(self, index: int, low: float, high: float) -> None:
        """New bounds for a column."""
        self.glp.glp_set_col_bnds(self.lp, index + 1, *self._bounds(low, high))

    def set_row(self, index: int, low: float, high: float) -> None:
        """New bounds for a row."""
        self.glp.glp_set_row_bnds(self.lp, index + 1, *self._bounds(low, high))

    def _read(self, name: str, size: int) -> npt.NDArray[np.float64]:
        # swiglpk wraps each function in another of the same name, which costs as much again.
        get, lp = getattr(self.glp._swiglpk, name), self.lp
        return np.array([get(lp, i) for i in range(1, size + 1)], dtype=float)

    def solve(
        self,
        *,
        dual: bool = False,
        time_s: float | None = None,
        brief: bool = False,
        light: bool = False,
    ) -> LpResult:
        """Solve from the present basis; `brief` leaves the duals out, `light` all but them."""
        glp = self.glp
        self.param.meth = glp.GLP_DUALP if dual else glp.GLP_PRIMAL
        self.param.tm_lim = 2**31 - 1 if time_s is None else max(1, int(time_s * 1000))
        code = glp.glp_simplex(self.lp, self.param)
        if code in (glp.GLP_EBADB, glp.GLP_ESING, glp.GLP_ECOND, glp.GLP_EFAIL):
            glp.glp_adv_basis(self.lp, 0)
            code = glp.glp_simplex(self.lp, self.param)
        good = code == 0 and glp.glp_get_status(self.lp) == glp.GLP_OPT
        none = np.zeros(0)
        if light:
            duals = self._read("glp_get_row_dual", self.rows)
            return LpResult(good, glp.glp_get_obj_val(self.lp), none, duals, none)
        x = self._read("glp_get_col_prim", self.cols)
        if brief:
            return LpResult(good, glp.glp_get_obj_val(self.lp), x, none, none)
        duals = self._read("glp_get_row_dual", self.rows)
        reduced = self._read("glp_get_col_dual", self.cols)
        return LpResult(good, glp.glp_get_obj_val(self.lp), x, duals, reduced)

    def fill_values(self, result: LpResult) -> None:
        """The values that a light solve left out, as long as nothing was solved since."""
        result.x = self._read("glp_get_col_prim", self.cols)

    def fill(self, result: LpResult) -> None:
        """All that a light solve left out, as long as nothing was solved since."""
        if len(result.x) != self.cols:
            self.fill_values(result)
        result.reduced = self._read("glp_get_col_dual", self.cols)
