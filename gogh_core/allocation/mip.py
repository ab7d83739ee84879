"""Every integer program goes through Pyomo to glpsol or HiGHS; no raw solver object leaves here.

A `Part` is the piece of the program that is left to decide: some columns, with what is fixed
already taken off the rows. The solver's outcome becomes a `MipResult` of ours: Pyomo reports a
run that a limit stopped in ways that are easy to misread, and a solver may die or print
nonsense. Its bound is never used.
"""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gogh_core.allocation.constraints import CONSTRAINTS
from gogh_core.allocation.lp import Program
from gogh_core.errors import SolverFailed

__all__ = [
    "MipResult",
    "Part",
    "available",
    "build_model",
    "run_model",
    "serving",
    "solve_lp",
    "solve_mip",
]

INF = float("inf")
_CONTINUOUS = ("on_server",)
_NODES = 50
"""Nodes for one MIP in HiGHS: of hundreds of ours the most that any needed were 15."""
_CUT_COLUMNS = 4000
"""Up to so many columns glpsol looks for cuts, which it does without a look at the clock."""


@dataclass(slots=True)
class Part:
    """Columns to decide; `fixed` is what the rest of the columns already put into each row."""

    program: Program
    columns: Sequence[int]
    fixed: Mapping[int, float]
    bounds: Mapping[int, tuple[float, float]]
    """Bounds of columns that differ from the program's."""
    integer: bool = True
    loose: frozenset[int] = frozenset()
    """Rows of sides that may stay empty: whoever is on the other side runs alone then."""

    def low(self, row: int) -> float:
        """The least that a row may come to."""
        return -INF if row in self.loose else float(self.program.row_low[row])

    def rows(self) -> dict[int, list[tuple[float, int]]]:
        """Row: entries (value, column)."""
        found: dict[int, list[tuple[float, int]]] = {}
        for index in self.columns:
            column = self.program.columns[index]
            for row, value in zip(column.rows, column.values, strict=True):
                found.setdefault(row, []).append((value, index))
        return found

    def add_family(self, model: Any, family: str) -> None:
        """Add the rows of one family to the model."""
        import pyomo.environ as pyo
        from pyomo.core.expr.numeric_expr import LinearExpression

        program = self.program
        mine = [row for row in sorted(model.gogh_rows) if program.row_keys[row][0] == family]
        if not mine:
            return

        def rule(_: Any, row: int) -> Any:
            entries = model.gogh_rows[row]
            body = LinearExpression(
                linear_coefs=[value for value, _ in entries],
                linear_vars=[model.x[index] for _, index in entries],
            )
            done = self.fixed.get(row, 0.0)
            low, high = self.low(row) - done, program.row_high[row] - done
            if low == high:
                return body == low
            return (None if low == -INF else low, body, None if high == INF else high)

        model.add_component(family, pyo.Constraint(mine, rule=rule))


@dataclass(slots=True)
class MipResult:
    """`found`: values of the part's columns, or None; `complete`: the solver says it finished."""

    found: dict[int, float] | None
    complete: bool
    message: str
    timed_out: bool = False
    """Whether the clock stopped it."""


def available(solver: str) -> bool:
    """Whether the solver can be started at all."""
    if solver == "glpk":
        return shutil.which("glpsol") is not None
    try:
        import highspy  # noqa: F401
    except ImportError:
        return False
    return True


def serving(wanted: str, notes: list[str]) -> str:
    """The solver that serves: the one asked for, or the other, said in the notes."""
    if available("glpk") and not available("highs"):
        notes.append("highspy is not installed; glpsol solved the linear programs too, slowly")
    if available(wanted):
        return wanted
    other = "highs" if wanted == "glpk" else "glpk"
    if available(other):
        notes.append(f"{wanted} is not installed; {other} served instead")
        return other
    notes.append("no solver is installed; the greedy rule placed the jobs")
    return wanted


def build_model(part: Part) -> Any:
    """The part as a Pyomo model, one function for each constraint."""
    import pyomo.environ as pyo
    from pyomo.core.expr.numeric_expr import LinearExpression

    program = part.program
    model = pyo.ConcreteModel()
    object.__setattr__(model, "gogh_rows", part.rows())

    def bounds(_: Any, index: int) -> tuple[float, float | None]:
        column = program.columns[index]
        low, high = part.bounds.get(index, (column.lower, column.upper))
        return low, None if high == INF else high

    def domain(_: Any, index: int) -> Any:
        whole = part.integer and program.columns[index].what[0] not in _CONTINUOUS
        return pyo.NonNegativeIntegers if whole else pyo.NonNegativeReals

    model.x = pyo.Var(list(part.columns), bounds=bounds, within=domain)
    model.cost = pyo.Objective(
        expr=LinearExpression(
            linear_coefs=[program.columns[index].cost for index in part.columns],
            linear_vars=[model.x[index] for index in part.columns],
        )
    )
    for constraint in CONSTRAINTS:
        constraint(model, part)
    return model


def solve_mip(part: Part, *, solver: str, gap: float, time_s: float) -> MipResult:
    """Solve a part; raises `SolverFailed` when the solver is missing, dies or prints nonsense."""
    if not part.columns:
        return MipResult({}, True, "nothing to decide")
    model = build_model(part)
    started = time.monotonic()
    with _quiet():
        try:
            status, message = run_model(model, solver, gap, time_s)
        except SolverFailed:
            raise
        except (
            OSError,
            ValueError,
            RuntimeError,
            KeyError,
            IndexError,
            AttributeError,
            TypeError,
        ) as error:
            raise SolverFailed(f"{solver} failed: {type(error).__name__}: {error}") from error
    timed_out = not status and time.monotonic() - started >= int(time_s)
    if status is None:
        return MipResult(None, False, message, timed_out)
    values = {index: model.x[index].value for index in part.columns}
    found = {index: float(value or 0.0) for index, value in values.items()}
    broken = _violated(part, found)
    if broken:
        raise SolverFailed(f"{solver} gave values that break row {broken}")
    return MipResult(found, status, message, timed_out)


def solve_lp(part: Part, *, time_s: float) -> tuple[dict[int, float], dict[int, float]] | None:
    """Values of columns and prices of rows by glpsol; None when it found no optimum."""
    import pyomo.environ as pyo

    if not available("glpk"):
        return None
    model = build_model(part)
    model.dual = pyo.Suffix(direction=pyo.Suffix.IMPORT)
    with _quiet():
        finished, _ = run_model(model, "glpk", 0.0, time_s)
    if not finished:
        return None
    rows = {
        row: float(model.dual.get(constraint[row], 0.0))
        for constraint in model.component_objects(pyo.Constraint)
        for row in constraint
    }
    return {index: float(model.x[index].value or 0.0) for index in part.columns}, rows


def run_model(model: Any, solver: str, gap: float, time_s: float) -> tuple[bool | None, str]:
    """(finished?, message) with values loaded, or (None, message) when nothing was found."""
    from pyomo.common.errors import ApplicationError

    run = _glpsol if solver == "glpk" else _highs
    try:
        return run(model, gap, time_s)
    except ApplicationError as error:
        raise SolverFailed(f"{solver} failed: {error}") from error


def _glpsol(model: Any, gap: float, time_s: float) -> tuple[bool | None, str]:
    import pyomo.environ as pyo
    from pyomo.opt import TerminationCondition

    limit_s = max(1, int(time_s))
    options: dict[str, Any] = {"mipgap": gap}
    if len(model.x) <= _CUT_COLUMNS:
        options["cuts"] = None
    try:
        result = pyo.SolverFactory("glpk").solve(
            model, load_solutions=False, options=options, timelimit=limit_s
        )
    except subprocess.TimeoutExpired as error:  # it has been killed
        raise SolverFailed(f"glpk did not end within {limit_s} s as told") from error
    condition = result.solver.termination_condition
    if len(result.solution) == 0:
        return None, str(condition)
    model.solutions.load_from(result)
    return condition == TerminationCondition.optimal, str(condition)


def _highs(model: Any, gap: float, time_s: float) -> tuple[bool | None, str]:
    """HiGHS by Pyomo's own class: `SolverFactory` wraps it in a way that hides the outcome."""
    from pyomo.contrib.appsi.base import TerminationCondition
    from pyomo.contrib.appsi.solvers.highs import Highs

    opt = Highs()
    opt.config.load_solution = False
    opt.config.time_limit = time_s
    opt.config.mip_gap = gap
    opt.highs_options = {"threads": 1, "random_seed": 0, "mip_max_nodes": _NODES}
    result = opt.solve(model)
    condition = result.termination_condition
    if result.best_feasible_objective is None:
        return None, str(condition)
    result.solution_loader.load_vars()
    return condition == TerminationCondition.optimal, str(condition)


def _violated(part: Part, found: Mapping[int, float]) -> str:
    """The first row that the values break, or nothing: a solver's word is checked."""
    program = part.program
    for row, entries in part.rows().items():
        total = part.fixed.get(row, 0.0) + sum(v * found[i] for v, i in entries)
        size = 1 + sum(abs(v * found[i]) for v, i in entries)
        if total > program.row_high[row] + 1e-5 * size or total < part.low(row) - 1e-5 * size:
            return str(program.row_keys[row])
    for index, value in found.items():
        if math.isnan(value) or value < -1e-6:
            return f"bounds of {program.columns[index].what}"
    return ""


@contextlib.contextmanager
def _quiet() -> Any:
    """Pyomo logs warnings for outcomes that are mapped here."""
    logger = logging.getLogger("pyomo")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
