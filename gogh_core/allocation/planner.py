"""Problem in, plan out: greedy first, then the column generation, always verified.

The work that was done ends the search, so that the same problem has the same plan again; the time
limit is an emergency stop, and where it struck the plan says so. The best plan so far is what
leaves, with its gap. The linear programs run in HiGHS, the integer ones in glpsol; each does the
work of the other where that is missing, and the greedy rule that of both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from gogh_core.allocation.assemble import (
    allowed,
    assemble,
    cost_of,
    guarded_w,
    infeasible_plan,
    stated_versions,
    total,
)
from gogh_core.allocation.branch import offer_counts, prove
from gogh_core.allocation.certificate import leaf
from gogh_core.allocation.colgen import Box, Search
from gogh_core.allocation.compiled import Compiled, Seats
from gogh_core.allocation.effort import Effort
from gogh_core.allocation.greedy import greedy_seats
from gogh_core.allocation.lp import LpResult
from gogh_core.allocation.mapping import map_counts
from gogh_core.allocation.mip import serving
from gogh_core.allocation.prices import Prices
from gogh_core.allocation.problem import Problem
from gogh_core.allocation.rounding import (
    WIDE,
    Reach,
    dive,
    finish,
    frees_more,
    rounded_down,
    waits_in_parts,
)
from gogh_core.allocation.staying import Infeasible, stay_seats
from gogh_core.allocation.verify import gap_of, verify
from gogh_core.allocation.verify_bound import bound_of
from gogh_core.domain import Plan, PlanStatus
from gogh_core.errors import InvalidInput, SolverFailed

__all__ = ["greedy", "plan"]

Solver = Literal["glpk", "highs"]
_LP_TOLERANCE = 3e-4
"""The LP of the generated columns is this near to that of all columns before it is rounded."""
_DIVE_TOLERANCE = 1e-3
_FEW = 12
"""Nodes that show whether the number of jobs that wait was all that was open."""
_LEAVES = 1_000_000
"""Prices in a certificate, about: each leaf has one for each job."""
_ROUNDING = 0.3
"""Share of the work that the first LP leaves for whole numbers."""
_EQUAL = 1e-7
"""Share of the cost below which plan and bound are the same: prices in files have nine digits."""
_RESERVE = 0.08
"""Share of the time that is kept for mapping, assembling and verifying."""
_STRUCK = "the time limit stopped the search before its work was done: another run may differ"
_SPENT = "the search ended after all the work it was given"


@dataclass(slots=True)
class _Best:
    """The best seats so far and the best proof so far."""

    seats: Seats
    cost_w: float
    bound_w: float
    certificate: dict[str, Any]
    source: str
    notes: list[str] = field(default_factory=list)
    guide: Compiled | None = None
    """Whose guidance counts, if not that of the search that found the seats."""

    def offer(self, compiled: Compiled, seats: Seats, source: str) -> bool:
        """Take seats that cost less."""
        compiled = self.guide or compiled
        cost_w = total(cost_of(compiled, seats))
        guided_w = cost_w + guarded_w(compiled, seats)
        present_w = self.cost_w + guarded_w(compiled, self.seats)
        better = guided_w < present_w - 1e-9 * (1 + abs(present_w))
        if better and allowed(compiled, seats):
            self.seats, self.cost_w, self.source = seats, cost_w, source
            return True
        return False

    @property
    def gap(self) -> float:
        """How far the plan may be from the best possible."""
        return gap_of(self.cost_w, min(self.bound_w, self.cost_w))


def plan(
    problem: Problem,
    *,
    solver: Solver = "glpk",
    gap: float = 0.01,
    time_limit_s: float = 60.0,
    effort: Effort | None = None,
    versions: Mapping[str, Any] | None = None,
) -> Plan:
    """The best plan that could be found and proven with the effort, verified before it leaves.

    Without `effort` the work is what a quiet machine does in half of the time limit.
    """
    if solver not in ("glpk", "highs"):
        raise InvalidInput(f"solver is {solver!r}", todo="use glpk or highs")
    started = time.monotonic()
    effort = Effort(time_limit_s=time_limit_s) if effort is None else effort.part()
    time_limit_s = effort.left_s
    stated = stated_versions(versions)
    compiled = Compiled(problem)
    notes: list[str] = []
    used = serving(solver, notes)
    try:
        stayed = stay_seats(compiled)
        third = effort.part(0.3)
        third.stop_by(0.3 * time_limit_s)
        seats = greedy_seats(compiled, most=WIDE, effort=third, kept=stayed)
    except Infeasible as answer:
        effort.stop_by(effort.left_s - _RESERVE * time_limit_s)
        rescued = _rescued(compiled, used, effort, notes)
        if rescued is None:
            return _no_plan(compiled, answer, used, started, stated)
        stayed = seats = rescued
    best = _Best(
        stayed, total(cost_of(compiled, stayed)), -float("inf"), {}, "stay", notes, compiled
    )
    stay_w = best.cost_w
    best.offer(compiled, seats, "greedy")
    # Verifying takes about as long as this did, on this machine today.
    effort.stop_by(effort.left_s - _reserve_s(started, time_limit_s))
    finished = _improve(compiled, best, used, gap, effort)
    if best.source == "greedy" and len(compiled.cls) > WIDE:
        # Nothing was solved: then all places are looked at, as long as there is time.
        best.offer(compiled, greedy_seats(compiled, effort=effort), "greedy")
    if best.bound_w == -float("inf"):
        best.bound_w = bound_of(problem, {})
    if gap_of(stay_w, min(best.bound_w, stay_w)) <= gap and bool(compiled.running.any()):
        # As good as asked without touching anybody: then nobody is touched.
        best.seats, best.cost_w, best.source = stayed, stay_w, used
    status: PlanStatus = "feasible"
    if best.gap <= gap + _EQUAL:
        status = "optimal"
    elif not finished and best.source in ("greedy", "stay"):
        status = "greedy"
    elif effort.clock_struck:
        status = "time_limit"
    if effort.clock_struck:
        notes.append(_STRUCK)
    elif not finished:
        notes.append(_SPENT)
    made = assemble(
        compiled,
        best.seats,
        status=status,
        solver="greedy" if status == "greedy" else used,
        solve_s=time.monotonic() - started,
        bound_w=best.bound_w,
        certificate=best.certificate,
        versions=stated,
        notes=tuple(dict.fromkeys(notes)),
    )
    return _checked(problem, made, versions)


def _reserve_s(started: float, time_limit_s: float) -> float:
    """Seconds that are kept for mapping, assembling and verifying, at most half of the limit."""
    took_s = time.monotonic() - started
    wanted = max(_RESERVE * time_limit_s, 1.2 * took_s) + min(0.25, 0.1 * time_limit_s)
    return min(wanted, 0.5 * time_limit_s)


def _rescued(compiled: Compiled, solver: str, effort: Effort, notes: list[str]) -> Seats | None:
    """Seats that keep every pin where the simple rules found none, for instance with a partner."""
    search = Search(compiled, solver=solver, effort=effort, notes=[])
    try:
        found = search.generate(_LP_TOLERANCE)
        if found is None:
            return None
        dived, fixed = dive(search, found[0], {}, _LP_TOLERANCE)
        counts = finish(search, dived, fixed, slack_w=0.0)
        seats = map_counts(compiled, search.master.program, counts)
    finally:
        search.lp.close()
    for j, job in enumerate(compiled.problem.jobs):
        here = frozenset().union(*(seat.gpus for seat in seats.get(j, ())))
        if job.pinned and here != job.place:
            return None
    cap = compiled.problem.power_cap_w
    spent = cost_of(compiled, seats)
    power_w = spent["base_w"] + spent["idle_w"] + spent["off_w"] + spent["options_w"]
    if cap is not None and power_w > cap * (1 + 1e-9):
        return None
    notes.append("pins and cap can only be kept in ways the simple rules do not try")
    return seats


def _improve(compiled: Compiled, best: _Best, solver: str, gap: float, effort: Effort) -> bool:
    """The search on the cost as it is; where it touches who is to be left alone, also with that.

    Only the search without guidance proves a bound: guidance is no part of the cost. Where already
    its LP touches somebody, its plans would be refused: it is rounded only if there is work left.
    """
    if not compiled.guard_w.any():
        return _search(compiled, best, solver, gap, effort)
    plain = Compiled(compiled.problem, by_server=compiled.by_server, guarded=False)
    first = effort.part(0.6)
    first.stop_by(0.6 * effort.left_s)
    search = Search(plain, solver=solver, effort=first, notes=best.notes)
    try:
        finished, root = _root(search, best, gap)
        if root is not None and best.gap > gap and not _touched(search, compiled, root):
            finished, root = _rounded(search, best, gap, root), None
        if best.gap <= gap and guarded_w(compiled, best.seats) <= 0:
            return finished  # Nobody is touched who is to be left alone.
        finished = _search(compiled, best, solver, gap, effort) and finished
        if root is not None and best.gap > gap and not effort.over():
            search.effort = effort
            finished = _rounded(search, best, gap, root)
        return finished
    finally:
        search.lp.close()


def _touched(search: Search, compiled: Compiled, result: LpResult) -> bool:
    """Whether the LP moves or stops, even in part, somebody who is to be left alone."""
    guarded = {int(search.c.group_of[j]) for j in np.flatnonzero(compiled.guard_w).tolist()}
    columns = search.master.program.columns
    return any(
        columns[at].what[0] in ("wait", "alone", "side", "bundle")
        and columns[at].what[1] in guarded
        for at in np.flatnonzero(result.x > 1e-6).tolist()
    )


def _search(compiled: Compiled, best: _Best, solver: str, gap: float, effort: Effort) -> bool:
    """Column generation, dive, residual MIP, branching; False when a limit stopped it."""
    search = Search(compiled, solver=solver, effort=effort, notes=best.notes)
    try:
        finished, root = _root(search, best, gap)
        return finished if root is None else _rounded(search, best, gap, root)
    finally:
        search.lp.close()


def _root(search: Search, best: _Best, gap: float) -> tuple[bool, LpResult | None]:
    """The first LP and what it proves; (whether all is done, the LP if it is to be rounded)."""
    effort = search.effort
    search.effort = effort.part(1 - _ROUNDING)
    search.effort.stop_by((1 - _ROUNDING) * effort.left_s)
    found = search.generate(_LP_TOLERANCE)
    cut_short = search.out_of_work()
    search.effort = effort
    if found is None:
        return False, None
    result, prices = found
    _prove_root(best, search, prices, rough=cut_short)
    if best.gap <= gap:
        return True, None
    if cut_short:
        # Nothing left for more than rounding down what there is; the greedy rule seats the rest.
        if not search.out_of_work():
            offer_counts(search, best, rounded_down(result.x))
        return False, None
    return True, result


def _rounded(search: Search, best: _Best, gap: float, result: LpResult) -> bool:
    """Dive, MIPs, branching; False when a limit stopped it."""
    if search.c.running.any():
        # Where most go on as now little is in parts: rounded down it may do.
        offer_counts(search, best, rounded_down(result.x))
        if best.gap <= gap:
            return True
    dived, fixed = dive(search, result, {}, _DIVE_TOLERANCE)
    _finish(search, best, dived, fixed, gap, "few")
    if len(search.c.groups) > WIDE:
        return not search.out_of_work()
    if best.gap > gap and waits_in_parts(search, result):
        prove(search, best, gap, nodes=_FEW)
    if best.gap > gap and not search.out_of_work():
        if search.c.running.any() and not search.pricer.spread:
            _corner(search, best)
        elif frees_more(search, dived):
            _finish(search, best, dived, fixed, gap, "more")
    if best.gap > gap and not search.out_of_work():
        _finish(search, best, dived, fixed, gap, "all")
    if best.gap > gap and not search.out_of_work():
        return prove(search, best, gap, nodes=max(_FEW, _LEAVES // max(1, len(search.c.cls))))
    return not search.out_of_work()


def _corner(search: Search, best: _Best) -> None:
    """The first LP again: with the columns of the dive it may end in another corner."""
    found = search.generate(_LP_TOLERANCE)
    if found is not None:
        offer_counts(search, best, rounded_down(found[0].x, near=0.1))


def _finish(
    search: Search, best: _Best, result: LpResult, fixed: Box, gap: float, reach: Reach
) -> None:
    """A MIP that may stop where the plan is good enough; a small problem is branched on later."""
    lp_w = result.cost + search.c.fixed_w
    slack_w = 0.7 * gap * abs(best.bound_w)
    if reach != "all":
        # The numbers of servers are fixed, which has cost some of it already.
        slack_w += best.bound_w - lp_w
    slack_w = max(slack_w, min(gap, 1e-4) * abs(lp_w))
    counts = finish(search, result, fixed, slack_w=slack_w, reach=reach)
    offer_counts(search, best, counts)


def _prove_root(best: _Best, search: Search, prices: Prices, *, rough: bool) -> None:
    """What the first LP proves; a rough one may prove less than no prices at all do."""
    kinds = "server" if search.c.by_server else "likeness"
    root = leaf(search, prices)
    certificate = {"kinds": kinds, "root": root}
    if rough:
        bound_w = bound_of(search.c.problem, certificate)
    else:
        bound_w = search.leaves.bound_w(root, {}, [])
    if bound_w > best.bound_w:
        best.bound_w, best.certificate = bound_w, certificate


def _checked(problem: Problem, made: Plan, versions: Mapping[str, Any] | None) -> Plan:
    """The plan if the verifier finds nothing, else the greedy one with what was found."""
    violations = verify(problem, made)
    if not violations:
        return made
    note = f"a plan was refused by the verifier ({violations[0]}); this is the greedy one"
    fallback = greedy(problem, versions=versions)
    if made.status == "greedy":
        raise SolverFailed(f"the verifier refused the plan: {'; '.join(violations[:5])}")
    raw = fallback.to_dict()
    raw["notes"] = [*raw["notes"], note]
    return Plan.from_dict(raw)


def _no_plan(
    compiled: Compiled, answer: Infeasible, solver: str, started: float, versions: dict[str, Any]
) -> Plan:
    """The plan that says there is none, and why; and whether the verifier sees that too."""
    made = infeasible_plan(
        compiled,
        answer.reasons,
        solver=solver,
        solve_s=time.monotonic() - started,
        versions=versions,
    )
    if not verify(compiled.problem, made):
        return made
    raw = made.to_dict()
    raw["notes"] = [
        *raw["notes"],
        "that no plan exists was found, but the verifier cannot prove it",
    ]
    return Plan.from_dict(raw)


def greedy(problem: Problem, *, versions: Mapping[str, Any] | None = None) -> Plan:
    """The greedy plan, labelled as such."""
    started = time.monotonic()
    compiled = Compiled(problem)
    stated = stated_versions(versions)
    try:
        seats = greedy_seats(compiled)
    except Infeasible as answer:
        return _no_plan(compiled, answer, "greedy", started, stated)
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
        raise SolverFailed(f"the verifier refused the greedy plan: {'; '.join(violations[:5])}")
    return result
