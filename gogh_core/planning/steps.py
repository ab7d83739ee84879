"""The steps of a cycle as plain functions, each of which degrades on its own.

state → ingest (with its contracts) → retrain → estimate → allocate → emit. A step gives what it has
and a list of what it had to do without; it raises UnsafeToPlan when going on could do harm.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from gogh_core.allocation import Effort, greedy, plan
from gogh_core.cluster import Capabilities, ClusterManager
from gogh_core.domain import ClusterState, Cycle, JobState, Plan
from gogh_core.errors import (
    ClusterUnavailable,
    GoghError,
    InvalidProblem,
    SolverFailed,
    UnsafeToPlan,
)
from gogh_core.planning.alone import FOREIGN
from gogh_core.planning.budget import OverBudget
from gogh_core.planning.kept_options import keep_options, kept_options, wanted
from gogh_core.planning.objectives import Aim
from gogh_core.planning.orders import Order
from gogh_core.planning.problem import Draft, draft_problem
from gogh_core.planning.promises import ANYWHERE, WITHOUT_MARGIN, some
from gogh_core.planning.request import Request
from gogh_core.settings import Settings
from gogh_core.store import Store, fetch

if TYPE_CHECKING:
    from gogh_core.estimation import RetrainReport
    from gogh_core.telemetry import IngestReport, Trust

__all__ = [
    "Allocated",
    "Estimated",
    "Ingested",
    "Retrained",
    "allocate_step",
    "estimate_step",
    "ingest_step",
    "read_state",
    "record_step",
    "retrain_step",
    "window_left_s",
]

_TRIES = 3
_LIVE = (JobState.WAITING, JobState.RUNNING, JobState.MOVING)
_LEAST_WORK = 0.5
"""Work for planning once more, also when the first plan took all there was."""
LEAST_WINDOW = 0.2
"""A replan late in its window is made for at least this share of one: its moves last longer."""


def read_state(manager: ClusterManager, settings: Settings, now: datetime) -> ClusterState:
    """What the cluster looks like; without it, or with an old one, nothing can be planned."""
    for attempt in range(_TRIES):
        try:
            state = manager.state()
            break
        except ClusterUnavailable as error:
            if attempt == _TRIES - 1:
                raise UnsafeToPlan(
                    f"the cluster manager gives no answer ({error})",
                    where=manager.name,
                    todo="see whether it runs; the last plan stays",
                ) from error
    age_s = (now - state.at).total_seconds()
    if age_s > settings.telemetry.max_age_s:
        raise UnsafeToPlan(
            f"the cluster's state is {age_s:.0f} s old, more than "
            f"{settings.telemetry.max_age_s:.0f} s",
            where=manager.name,
            todo="renew it, or raise telemetry.max_age_s",
        )
    return state


def record_step(store: Store, settings: Settings, manager: ClusterManager, now: datetime) -> None:
    """Keep the cluster's state as it is now, behind its contracts, for what people read."""
    from gogh_core.telemetry import keep_records

    keep_records(store, settings, read_state(manager, settings, now), now=now)


@dataclass(frozen=True, slots=True)
class Ingested:
    """What came in, and how old the newest accepted data is (None: there has never been any)."""

    report: IngestReport | None
    data_age_s: float | None
    trust: Trust | None = None
    """Which records broke their contract; nothing is planned with them."""
    degraded: tuple[str, ...] = ()


def ingest_step(
    store: Store,
    settings: Settings,
    state: ClusterState,
    now: datetime,
    *,
    within: Callable[[Callable[[], IngestReport]], IngestReport] | None = None,
) -> Ingested:
    """Take telemetry in and validate it; what is missing is named, too old data is refused."""
    from gogh_core.telemetry import ingest, trusted

    degraded: list[str] = []
    report: IngestReport | None = None
    try:
        run = within or (lambda work: work())
        report = run(lambda: ingest(store, settings, now=now, state=state))
    except (GoghError, OverBudget) as error:
        degraded.append(f"telemetry could not be taken in: {error}")
    degraded += report.faults if report is not None else ()
    with store.read() as connection:
        newest = fetch(connection, "planning_newest_data").to_pylist()[0]["ts"]
    trust = trusted(store)
    for what, records in (("job", trust.held_jobs), ("server", trust.held_servers)):
        if records:
            degraded.append(f"{what} records held back by contract: {', '.join(sorted(records))}")
    age_s = None if newest is None else max(0.0, (now - newest).total_seconds())
    _check_age(age_s, state, settings, degraded)
    return Ingested(report, age_s, trust, tuple(degraded))


def _check_age(
    age_s: float | None, state: ClusterState, settings: Settings, degraded: list[str]
) -> None:
    running = sum(1 for status in state.jobs if status.state is JobState.RUNNING)
    if not running:
        return
    if age_s is None:
        degraded.append("no telemetry has come yet: planned from declarations alone")
    elif age_s > settings.telemetry.max_age_s:
        raise UnsafeToPlan(
            f"the newest telemetry is {age_s:.0f} s old, more than "
            f"{settings.telemetry.max_age_s:.0f} s, and {running} jobs run",
            todo="bring a source back, or raise telemetry.max_age_s; the last plan stays",
        )
    elif age_s > 2 * settings.cycle.window_s:
        degraded.append(f"the newest telemetry is {age_s:.0f} s old")


@dataclass(frozen=True, slots=True)
class Retrained:
    """What became of retraining."""

    report: RetrainReport | None = None
    degraded: tuple[str, ...] = ()


def retrain_step(
    store: Store,
    settings: Settings,
    now: datetime,
    *,
    budget_s: float,
    observations: int | None = None,
    full: bool = False,
) -> Retrained:
    """Retrain P2 on what came in; whatever goes wrong, the serving network goes on serving.

    Without new `observations` there is nothing to learn, and nothing is done. `full` trains P1 too,
    for as long as `budget_s` allows.
    """
    from gogh_core import estimation

    if observations == 0:
        return Retrained()
    limit_s = budget_s if full else min(budget_s, settings.estimation.retrain_budget_s)
    if limit_s < 1.0:
        return Retrained(degraded=("no time was left to retrain: the serving network serves",))
    try:
        report = estimation.retrain(
            store,
            estimation.Registry(settings.models),
            budget_s=limit_s,
            full=full,
            now=now,
            half_life_days=settings.estimation.half_life_days,
        )
    except (GoghError, ArithmeticError, MemoryError) as error:
        return Retrained(degraded=(f"retraining failed ({error}): the serving network serves",))
    if report.candidate:
        with store.write() as connection:
            fetch(
                connection,
                "planning_insert_version",
                version=report.candidate,
                created_at=now,
                promoted_at=now if report.promoted else None,
                scores=json.dumps(report.scores),
                reason=report.reason,
            )
    return Retrained(report)


@dataclass(frozen=True)
class Estimated:
    """Every way to run every class, at the chosen confidence."""

    options: pa.Table
    version: str
    degraded: tuple[str, ...] = ()


def estimate_step(
    store: Store,
    settings: Settings,
    state: ClusterState,
    now: datetime,
    capabilities: Capabilities,
    *,
    increment: bool = False,
) -> Estimated:
    """Estimate the queue and the running jobs on all GPU types of the cluster.

    An increment takes what the last cycle estimated where that knows all its classes.
    """
    kept = kept_options(settings, wanted(state, ended=False)) if increment else None
    if kept is not None:
        return Estimated(*kept)
    from gogh_core.estimation import Catalog, Estimator, load_estimator

    degraded: list[str] = []
    try:
        estimator = load_estimator(settings.models)
    except GoghError as error:
        degraded.append(f"the serving network cannot be used ({error}): the one we came with is")
        estimator = Estimator()
    try:
        catalog = Catalog.from_store(
            store, now=now, half_life_days=settings.estimation.half_life_days
        )
    except GoghError as error:
        degraded.append(f"measurements cannot be used ({error}): estimated from declarations")
        catalog = Catalog.empty()
    known = wanted(state, ended=True)
    classes, types, counts = known
    options = estimator.options(
        catalog,
        [classes[name] for name in sorted(classes)],
        types,
        gpu_counts=counts,
        confidence=settings.estimation.confidence,
        pairs=settings.allocation.share and capabilities.pairs_named_jobs,
    )
    keep_options(settings, options, estimator.version, known)
    return Estimated(options, estimator.version, tuple(degraded))


@dataclass(frozen=True)
class Allocated:
    """The plan of a window: as the solver made it, and as it is carried out (`plan`)."""

    draft: Draft
    solved: Plan
    plan: Plan
    degraded: tuple[str, ...] = ()


def allocate_step(
    state: ClusterState,
    estimated: Estimated,
    settings: Settings,
    request: Request,
    now: datetime,
    *,
    cycle: Cycle,
    capabilities: Capabilities,
    trust: Trust | None = None,
    budget_s: float | None = None,
    spent: Collection[str] = (),
    orders: Sequence[Order] = (),
    aim: Aim | None = None,
) -> Allocated:
    """Problem in, plan out; a solver that fails or runs out of work still gives a plan.

    Jobs that would wait because no free place keeps their promise with its margin are planned once
    more without the margin, and running ones with what they have; those that still wait are planned
    with any place: a slow one is better than none. `spent` jobs stay where they are, unless pins,
    drains and the cap cannot be kept without them.
    """
    limit_s = request.time_limit_s or settings.allocation.time_limit_s
    if budget_s is not None:
        limit_s = max(1.0, min(limit_s, budget_s))
    effort = Effort(_work(settings, request), time_limit_s=limit_s)
    state, held = _trusted_part(state, trust)

    def solve(share: float, relax: Mapping[str, int]) -> Allocated:
        draft = _draft(
            lambda: draft_problem(
                state,
                estimated.options,
                settings,
                request,
                now,
                capabilities=capabilities,
                window_s=window_left_s(cycle, settings, now),
                held=held,
                relax=relax,
                spent=spent,
                orders=orders,
                aim=aim,
            )
        )
        mine = effort.part(share, least=_LEAST_WORK)
        mine.stop_by(share * effort.left_s)
        solved, degraded = _solve(draft, settings, request, mine, estimated.version)
        solved = draft.told(solved)
        return Allocated(draft, solved, _carried_out(solved, draft, cycle), degraded)

    relax: dict[str, int] = {}
    made, told = solve(0.6, relax), tuple[str, ...]()
    if made.solved.status == "infeasible" and made.draft.spared:
        told = (f"{some(made.draft.spared)} disturbed too often in a day: no plan without that",)
        spent = ()
        made = solve(0.6, relax)
    for level, share in ((WITHOUT_MARGIN, 0.6), (ANYWHERE, 1.0)):
        out = _left_out(made)
        if not out:
            break
        relax |= dict.fromkeys(out, level)
        # All that run may stay: otherwise the next pass would stop others in their place.
        relax |= {job.id: WITHOUT_MARGIN for job in made.draft.problem.jobs if job.at}
        again = solve(share, relax)
        if _left(again) <= _left(made):
            made = again
    return replace(made, degraded=(*told, *made.degraded))


def _work(settings: Settings, request: Request) -> float:
    """The solver's work: what the clock left of the cycle is no part of it."""
    allocation = settings.allocation
    if request.time_limit_s is not None:
        return Effort(time_limit_s=request.time_limit_s).limit
    return allocation.work_limit or Effort(time_limit_s=allocation.time_limit_s).limit


def _left(made: Allocated) -> tuple[int, int]:
    """Jobs that are stopped and jobs that wait: no job is stopped to place several others."""
    return len(made.solved.stops), len(made.solved.waiting)


def _left_out(made: Allocated) -> frozenset[str]:
    """Jobs that wait for what they were promised, and would do with less than that."""
    if made.solved.status == "infeasible":
        return frozenset()
    waits = {waiting.job for waiting in made.solved.waiting}
    jobs = made.draft.problem.jobs
    return frozenset(job.id for job in jobs if job.id in waits and job.required_throughput > 0)


def _trusted_part(state: ClusterState, trust: Trust | None) -> tuple[ClusterState, frozenset[str]]:
    """The state without servers that are held back, and the jobs that must be left alone."""
    if trust is None:
        return state, frozenset()
    servers = tuple(s for s in state.servers if s.server.id not in trust.held_servers)
    held = {
        status.job.id
        for status in state.jobs
        if status.job.id in trust.held_jobs
        or any(slot.server in trust.held_servers for slot in status.slots)
    }
    return replace(state, servers=servers), frozenset(held)


def _draft(make: Callable[[], Draft]) -> Draft:
    try:
        draft = make()
    except InvalidProblem as error:
        raise UnsafeToPlan(
            f"the cluster's state makes no problem: {error.what}", todo="see the manager's records"
        ) from error
    if not draft.problem.servers:
        raise UnsafeToPlan("no server can be used", todo="see whether the cluster is up")
    return draft


def _solve(
    draft: Draft, settings: Settings, request: Request, effort: Effort, version: str
) -> tuple[Plan, tuple[str, ...]]:
    gap = settings.allocation.gap if request.gap is None else request.gap
    solver = request.solver or settings.allocation.solver
    versions = {"estimator": version, **(draft.outlook.facts if draft.outlook else {})}
    try:
        solved = plan(draft.posed, solver=solver, gap=gap, effort=effort, versions=versions)
    except SolverFailed as error:
        solved = greedy(draft.posed, versions=versions)
        return solved, (f"the solver failed ({error}): planned by the greedy rule",)
    if solved.status == "time_limit":
        return solved, (f"the solver ran out of time: gap {solved.gap:.2%}, asked {gap:.2%}",)
    if solved.status == "greedy":
        return solved, ("planned by the greedy rule: nothing better was found in time",)
    if effort.spent and solved.status == "feasible":
        return solved, (f"the solver's work ran out: gap {solved.gap:.2%}, asked {gap:.2%}",)
    return solved, ()


def window_left_s(cycle: Cycle, settings: Settings, now: datetime) -> float:
    """What is left of the window: all of it for the schedule, the rest for a replan."""
    window_s = float(settings.cycle.window_s)
    if cycle.revision == 0:
        return window_s
    passed_s = (now - cycle.window_start).total_seconds()
    return min(window_s, max(LEAST_WINDOW * window_s, window_s - passed_s))


def _carried_out(solved: Plan, draft: Draft, cycle: Cycle) -> Plan:
    """The plan without jobs of nobody, with those that could not be planned, under its own id."""
    return replace(
        solved,
        id=f"{cycle.id}-{draft.posed.sha256[:8]}",
        placements=tuple(p for p in solved.placements if not p.job.startswith(FOREIGN)),
        waiting=(*(w for w in solved.waiting if not w.job.startswith(FOREIGN)), *draft.waiting),
        notes=_unique((*solved.notes, *draft.notes)),
    )


def _unique(notes: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(notes))
