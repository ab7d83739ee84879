"""Problem in, plan out: greedy first, then the column generation, always verified."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from gogh_core.allocation.assemble import assemble, infeasible_plan
from gogh_core.allocation.compiled import Compiled
from gogh_core.allocation.greedy import Infeasible, greedy_seats
from gogh_core.allocation.problem import Problem
from gogh_core.allocation.verify import verify
from gogh_core.allocation.verify_bound import bound_of
from gogh_core.domain import Plan

__all__ = ["greedy", "plan"]

Solver = Literal["glpk", "highs"]


def plan(
    problem: Problem,
    *,
    solver: Solver = "glpk",
    gap: float = 0.01,
    time_limit_s: float = 60.0,
    versions: Mapping[str, Any] | None = None,
) -> Plan:
    """The best plan that could be found and proven in the time, verified before it leaves."""
    return greedy(problem, versions=versions)


def greedy(problem: Problem, *, versions: Mapping[str, Any] | None = None) -> Plan:
    """The greedy plan, labelled as such."""
    started = time.monotonic()
    compiled = Compiled(problem)
    stated = _versions(versions)
    try:
        seats = greedy_seats(compiled)
    except Infeasible as answer:
        return infeasible_plan(
            compiled,
            answer.reasons,
            solver="greedy",
            solve_s=time.monotonic() - started,
            versions=stated,
        )
    result = assemble(
        compiled,
        seats,
        status="greedy",
        solver="greedy",
        solve_s=time.monotonic() - started,
        bound_w=bound_of(problem, {}),
        certificate={},
        versions=stated,
        notes=("made by the greedy rule, nothing was solved",),
    )
    violations = verify(problem, result)
    if violations:
        raise AssertionError(violations)
    return result


def _versions(given: Mapping[str, Any] | None) -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("gogh")
    except PackageNotFoundError:
        own = "unknown"
    return {"gogh": own, **(given or {})}
