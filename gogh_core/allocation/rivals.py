"""Other ways to plan, for comparison on the same problems: never better, often dead.

first fit      jobs in their order, alone on the first server with room that is fast enough
best fit       the greedy rule: each where it adds the least watts (`greedy`)
whole          every column of the full problem in one MIP, no generation
naive          the paper's program: one binary for each GPU and combination (`naive.py`)
Each gives a plan that the verifier passed, or None when it found nothing in its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from gogh_core.allocation.assemble import assemble
from gogh_core.allocation.board import Board
from gogh_core.allocation.compiled import Compiled, Seat, Seats
from gogh_core.allocation.greedy import greedy_seats
from gogh_core.allocation.mapping import map_counts
from gogh_core.allocation.master import Master
from gogh_core.allocation.mip import Part, solve_mip
from gogh_core.allocation.naive import naive_seats
from gogh_core.allocation.pricing import Pricer
from gogh_core.allocation.problem import Problem
from gogh_core.allocation.verify import verify
from gogh_core.allocation.verify_bound import bound_of
from gogh_core.domain import Plan
from gogh_core.errors import InvalidInput, SolverFailed

__all__ = ["RIVALS", "rival_plan"]

Rival = Callable[[Compiled, float, float], Seats | None]


def first_fit(c: Compiled, gap: float, time_s: float) -> Seats:
    """Jobs in their order, alone, each on the first server that has room and is fast enough."""
    del gap, time_s
    board = Board(c)
    order = {server.id: at for at, server in enumerate(c.problem.servers)}
    lists = {
        t: [s.id for s in c.problem.servers if c.type_index.get(s.gpu_type) == t and not s.drain]
        for t in range(len(c.table.types))
    }
    first: dict[tuple[int, int], int] = {}
    for j in range(len(c.cls)):
        if c.spread[j]:
            continue
        group = c.groups[c.group_of[j]]
        rows = c.side_row[c.sides(group.cls)]
        best: tuple[int, int, str] | None = None
        for row in rows[np.flatnonzero(group.usable & ~c.pair[rows])].tolist():
            t, m = int(c.table.type_id[row]), int(c.table.gpus[row])
            at = first.get((t, m), 0)
            while at < len(lists[t]) and len(board.free[lists[t][at]]) < m:
                at += 1
            first[t, m] = at
            if at < len(lists[t]) and (best is None or order[lists[t][at]] < best[0]):
                best = (order[lists[t][at]], row, lists[t][at])
        if best is not None:
            _, row, server = best
            gpus = tuple(sorted(board.free[server])[: int(c.table.gpus[row])])
            board.put([Seat(j, ((server, gpus),), row)])
    return board.seats


def best_fit(c: Compiled, gap: float, time_s: float) -> Seats:
    """Each job where it adds the least watts, hardest first."""
    del gap, time_s
    return greedy_seats(c)


def whole(c: Compiled, gap: float, time_s: float, solver: str = "highs") -> Seats | None:
    """Every column of the full problem in one MIP (gangs that are not running only)."""
    master = Master(c)
    pricer = Pricer(master)
    kinds = {t: [k for k in c.kinds if k.gpu_type == t] for t in range(len(c.table.types))}
    for group in c.groups:
        for side in (np.flatnonzero(group.usable) + c.sides(group.cls).start).tolist():
            row = int(c.side_row[side])
            fit = [k for k in kinds[int(c.table.type_id[row])] if k.size >= c.table.gpus[row]]
            for kind in fit:
                if not pricer.side_pair[side]:
                    master.alone(group, row, (kind.index,))
                    continue
                for realm in c.job_realms[group.first]:
                    master.side(group, row, int(c.side_no[side]), realm)
                    master.pair(row, realm, (kind.index,))
    part = Part(master.program, range(len(master.program.columns)), {}, {})
    outcome = solve_mip(part, solver=solver, gap=gap, time_s=time_s)
    if outcome.found is None:
        return None
    counts = {index: round(value) for index, value in outcome.found.items() if value > 0.5}
    return map_counts(c, master.program, counts)


def naive(c: Compiled, gap: float, time_s: float) -> Seats | None:
    """The paper's program in GLPK."""
    return naive_seats(c, solver="glpk", gap=gap, time_s=time_s)


RIVALS: dict[str, Rival] = {
    "first fit": first_fit,
    "best fit": best_fit,
    "whole, HiGHS": whole,
    "naive, GLPK": naive,
}


def rival_plan(name: str, problem: Problem, *, gap: float, time_limit_s: float) -> Plan | None:
    """The verified plan of a rival, or None when it found nothing in the time."""
    if name not in RIVALS:
        raise InvalidInput(f"there is no rival {name!r}", todo=f"use one of {', '.join(RIVALS)}")
    started = time.monotonic()
    compiled = Compiled(problem)
    seats = RIVALS[name](compiled, gap, time_limit_s)
    if seats is None:
        return None
    made = assemble(
        compiled,
        seats,
        status="feasible",
        solver=name,
        solve_s=time.monotonic() - started,
        bound_w=bound_of(problem, {}),
        certificate={},
        versions={},
        notes=(),
    )
    violations = verify(problem, made)
    if violations:
        raise SolverFailed(f"the verifier refused the plan of {name}: {violations[0]}")
    return made
