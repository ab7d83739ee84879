"""From the cluster's state and the options at the chosen confidence to a problem.

`build_problem` is pure: the same state, options, settings, request and time give the same problem.
The rules, each a small function:

- a job that runs keeps twice its priority; one that waits doubles it for each `priority_age_s` it
  waits, so that it overtakes a running equal after one such time and nobody starves;
- what a job declares counts as far as its owner's class of service goes, and stops no running job
  of another owner at the same level (`service`);
- a deadline asks for the steps that are left over the time that is left; one that cannot be met
  any more becomes best effort, and says so;
- a promise is kept at the chosen confidence where that is possible; a job that finds no such place
  (or already runs where it likely gets enough) is planned on the average; where nothing keeps the
  promise it gets nearly the best there is. The plan names these jobs;
- a class that nowhere surely fits into memory is tried, alone, where it is likeliest to;
- best effort requires nothing; a step is worth what it would cost later (`objectives`), so that it
  runs where and when a step costs least; a job that does better to wait pays no penalty for it;
- the guards leave young and lately moved jobs alone, but not those that must leave their server or
  get less than their promise; a job that was disturbed as often as a day allows stays, unless it
  must leave. Whether a job may move is decided here alone: the executor moves what the plan moves;
- GPUs that are dead or taken by others are held by a job of nobody that is pinned there;
- standing orders are kept: drained servers are emptied, pinned jobs stay, the lowest cap and quota
  count, and only jobs that are done in time start on servers that will be drained;
- a running job that cannot be planned (its record is held back, nothing is known of its class, it
  shares a GPU with such a one) is left alone in the same way; a waiting one waits, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pyarrow as pa

from gogh_core import hardware
from gogh_core.allocation import Limits, Problem, ProblemJob, ProblemServer
from gogh_core.cluster import Capabilities
from gogh_core.domain import (
    ClusterState,
    JobState,
    JobStatus,
    Mode,
    Plan,
    PowerState,
    Slot,
    Waiting,
)
from gogh_core.planning.alone import foreign, taken_gpus, unplannable
from gogh_core.planning.closing import Closed, Paces, close
from gogh_core.planning.objectives import Aim, Later, Outlook, crowding, step_worth_j
from gogh_core.planning.orders import Order, wishes
from gogh_core.planning.promises import ENOUGH, Promise, promise, some, told, waiting_priority
from gogh_core.planning.request import Request
from gogh_core.planning.service import Service
from gogh_core.planning.shifting import may_stop, rests, told_why
from gogh_core.planning.standing import Standing
from gogh_core.planning.ways import Rate, Spot, Ways, together
from gogh_core.settings import Settings

__all__ = ["Draft", "build_problem", "draft_problem"]

_LIVE = (JobState.WAITING, JobState.RUNNING, JobState.MOVING)
_USABLE = (PowerState.ON, PowerState.SWITCHING_ON)
_ALL = Capabilities(True, True, True, True)


@dataclass(frozen=True)
class Draft:
    """A problem, and what was decided on the way to it."""

    problem: Problem
    notes: tuple[str, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    """Jobs that are not in the problem because nothing can be planned for them yet."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """How sure each job's promise is: `sure`, `likely`, `short` or `late`."""
    promised: Mapping[str, float] = field(default_factory=dict)
    """What each job was promised, or its deadline needs; the problem may require less."""
    spared: tuple[str, ...] = ()
    """Jobs that stay because they were disturbed as often as a day allows."""
    closed: Closed | None = None
    """The problem as it is solved, where servers will be drained."""
    standing: Standing = field(default_factory=Standing)
    concerned: Mapping[str, Sequence[Order]] = field(default_factory=dict)
    """By job the orders that take places from it."""
    outlook: Outlook | None = None
    later: Mapping[str, Later] = field(default_factory=dict)
    """Jobs that do better to wait, and the hours they wait for."""

    @property
    def posed(self) -> Problem:
        """The problem as it is solved: closing servers are GPU types of their own there."""
        return self.problem if self.closed is None else self.closed.problem

    def told(self, plan: Plan) -> Plan:
        """The plan with reasons that name the orders and the hours behind them."""
        leaving = frozenset() if self.closed is None else self.closed.leaving
        return self.standing.told(told_why(plan, self.later), leaving, self.concerned)


def build_problem(
    state: ClusterState,
    options: pa.Table,
    settings: Settings,
    request: Request,
    now: datetime,
) -> Problem:
    """The problem of one window."""
    return draft_problem(state, options, settings, request, now).problem


def draft_problem(
    state: ClusterState,
    options: pa.Table,
    settings: Settings,
    request: Request,
    now: datetime,
    *,
    capabilities: Capabilities = _ALL,
    window_s: float | None = None,
    held: Collection[str] = (),
    relax: Mapping[str, int] | None = None,
    spent: Collection[str] = (),
    orders: Sequence[Order] = (),
    aim: Aim | None = None,
) -> Draft:
    """The problem of what is left of a window.

    `options` is a table as `ways` describes it; `held` are jobs whose records broke their contract;
    `relax` has those that found no place for their promise, and how far it is let go; `spent` are
    those that were moved and stopped as often as a day allows; `orders` are what stands; `aim` is
    the objective with its curve.
    """
    asked = wishes(request, now)
    for wish in asked:
        wish.check(state)
    window_s = float(settings.cycle.window_s if window_s is None else window_s)
    standing = Standing.of([*orders, *asked], state, now, window_s)
    end = now + timedelta(seconds=window_s)
    soon = {server for server, order in standing.closing.items() if order.begins_at < end}
    notes: list[str] = []
    boot_j = settings.allocation.missed_promise_w * settings.allocation.boot_s
    servers = _servers(state, standing, capabilities, boot_j)
    here = {server.id: server for server in servers}
    types = {server.gpu_type for server in servers}
    declared = {status.job.id: status for status in state.jobs if status.state in _LIVE}
    service = Service.of(declared, settings)
    live = {name: service.bounded(status) for name, status in declared.items()}
    at = {name: _place(status, here) for name, status in live.items()}
    spots = _spots(live, at, here)
    in_use = {spot for mine in spots.values() for spot in mine}
    classes = {status.job.job_class for status in live.values()}
    ways = Ways.of(options, settings, capabilities, types, classes, in_use, _base_shares(servers))
    faults = unplannable(live, at, here, ways.classes, held=held, state=state)
    known = ways.here(in_use)
    paces = {name: together([known.get(spot) for spot in mine]) for name, mine in spots.items()}
    aim = aim or Aim(request.objective or settings.objective.name)
    gpus = sum(server.gpus for server in servers)
    outlook = Outlook(now, window_s, aim, crowding((s.job for s in live.values()), gpus))
    running = {name: status for name, status in live.items() if at[name]}
    stay = running if request.increment else {*spent, *standing.pinned, *faults}
    stoppable = may_stop(running, stay, ways, outlook, settings.guards)
    later: dict[str, Later] = {}
    kinds: dict[str, str] = {}
    promised: dict[str, float] = {}
    jobs, waiting, spared, overstated = [], [], [], []
    for name, status in sorted(live.items()):
        if name not in faults:
            rate = paces[name]
            must_leave = any(here[s.server].drain or s.server in soon for s in at[name])
            spare = name in spent and rate is not None and not must_leave
            job, owed = _planned(
                status,
                at[name],
                rate,
                ways,
                settings,
                outlook,
                now,
                service,
                pinned=bool(at[name])
                and (
                    spare
                    or name in standing.pinned
                    or (request.increment and not must_leave and not _short(status, rate))
                ),
                must_leave=must_leave,
                relax=(relax or {}).get(name, 0),
                may_wait=name in stoppable or not at[name],
            )
            jobs.append(job)
            later |= {name: owed.later} if owed.later is not None else {}
            most_j = service.step_worth(status.job.owner) * step_worth_j(status.job, ways)
            if 0 < most_j < status.job.surplus_j_per_step:
                overstated.append(name)
            kinds[name], promised[name] = owed.kind, owed.promised
            spared += [name] if spare else []
        elif status.slots:
            notes.append(f"job {name} is left alone: {faults[name]}")
        else:
            waiting.append(Waiting(name, faults[name]))
    taken = taken_gpus(state, here, [slot for name in faults for slot in at[name]])
    foreign_jobs, foreign_options = foreign(taken, here)
    moves = [settings.guards.max_moves, settings.allocation.max_moves, request.max_moves]
    problem = Problem(
        window_s=window_s,
        waiting_penalty_w=settings.allocation.waiting_penalty_w,
        gpu_types={name: float(hardware.get(name).idle_w) for name in types},
        servers=servers,
        jobs=[*jobs, *foreign_jobs],
        options=ways.with_options(foreign_options),
        power_cap_w=standing.cap_w(settings.allocation.power_cap_w),
        max_moves=min(limit for limit in moves if limit is not None),
        quotas=standing.quotas_with(settings.allocation.quotas),
        limits=Limits(settings.guards.min_runtime_s, settings.guards.cooldown_s),
        where="problem of this window",
    )
    notes += _tried([live[job.id] for job in jobs if not at[job.id]], ways)
    if spared:
        often = f"disturbed {settings.guards.max_disruptions_per_day} times within a day"
        notes.append(f"left where they are, {often}: {some(spared)}")
    closed = close(
        problem,
        {server: order.begins_at for server, order in standing.closing.items()},
        now,
        Paces.of(live, paces),
    )
    if closed.homeless:
        problem = replace(problem, jobs=[j for j in problem.jobs if j.id not in closed.homeless])
        why = "no servers can hold it without those that are about to be drained"
        waiting += [Waiting(name, why) for name in sorted(closed.homeless)]
    concerned = standing.concerned(problem, live, ways, closed.barred)
    declarations = service.told(declared.values(), overstated)
    notes = [*outlook.notes, *standing.notes, *declarations, *told(kinds), *notes]
    return Draft(
        problem,
        tuple(notes),
        tuple(waiting),
        kinds,
        promised,
        tuple(spared),
        closed,
        standing,
        concerned,
        outlook,
        later,
    )


def _short(status: JobStatus, rate: Rate | None) -> bool:
    """Whether a running job gets clearly less than its promise where it is."""
    return rate is not None and rate.mean < ENOUGH * status.job.required_throughput


def _tried(waiting: Sequence[JobStatus], ways: Ways) -> list[str]:
    """Jobs that may run out of memory wherever they are put."""
    return [
        f"job {status.job.id} is tried where it is likeliest to fit "
        f"({ways.tried[status.job.job_class]:.0%})"
        for status in waiting
        if status.job.job_class in ways.tried
    ]


def _servers(
    state: ClusterState, standing: Standing, capabilities: Capabilities, boot_j: float = 0.0
) -> list[ProblemServer]:
    """Servers that can be used; one that cannot be switched stays as it is."""
    servers = []
    for status in state.servers:
        on = status.power in _USABLE
        if status.power is PowerState.DOWN or (not on and not capabilities.switches_servers):
            continue
        server = status.server
        all_taken = len(set(status.foreign_gpus)) >= server.gpus
        servers.append(
            ProblemServer(
                id=server.id,
                gpu_type=server.gpu_type,
                gpus=server.gpus,
                base_w=float(server.base_w),
                on=on,
                drain=status.drain or server.id in standing.drained or all_taken,
                keep_on=on
                and (
                    status.keep_on or bool(status.foreign_gpus) or not capabilities.switches_servers
                ),
                off_w=float(server.off_w),
                switch_cost_j=float(server.switch_cost_j) + (0.0 if on else boot_j),
            )
        )
    return servers


def _base_shares(servers: Sequence[ProblemServer]) -> dict[str, float]:
    """By GPU type, a GPU's share of the draw of the server it sits in, on average."""
    watts: dict[str, float] = {}
    gpus: dict[str, int] = {}
    for server in servers:
        watts[server.gpu_type] = watts.get(server.gpu_type, 0.0) + server.base_w
        gpus[server.gpu_type] = gpus.get(server.gpu_type, 0) + server.gpus
    return {kind: watts[kind] / gpus[kind] for kind in watts}


def _spots(
    live: Mapping[str, JobStatus],
    at: Mapping[str, tuple[Slot, ...]],
    here: Mapping[str, ProblemServer],
) -> dict[str, list[Spot]]:
    """How each job runs now: a gang has one spot, a spread job one for each of its slots."""
    users: dict[Slot, list[str]] = {}
    for name, slots in at.items():
        for slot in slots:
            users.setdefault(slot, []).append(name)
    spots: dict[str, list[Spot]] = {}
    for name, slots in at.items():
        job = live[name].job
        whole = job.mode is Mode.GANG
        spots[name] = []
        for slot in slots[:1] if whole else slots:
            mates = [other for other in users[slot] if other != name]
            mate = live[mates[0]].job.job_class if mates else None
            gpus = sum(len(each.gpus) for each in slots) if whole else len(slot.gpus)
            spots[name].append((here[slot.server].gpu_type, gpus, job.job_class, mate))
    return spots


def _planned(
    status: JobStatus,
    at: tuple[Slot, ...],
    here: Rate | None,
    ways: Ways,
    settings: Settings,
    outlook: Outlook,
    now: datetime,
    service: Service,
    *,
    pinned: bool,
    must_leave: bool,
    relax: int,
    may_wait: bool,
) -> tuple[ProblemJob, Promise]:
    """One job as the planner sees it: what it is owed, and whether it may move."""
    fixed = not status.job.movable or status.state is JobState.MOVING
    owed = promise(
        status,
        ways,
        outlook,
        now,
        margin=settings.allocation.margin,
        missed_w=settings.allocation.missed_promise_w,
        here=here,
        relax=relax,
        stays=pinned or fixed,
        rests=not must_leave and rests(status, settings.guards, now),
        step_worth=service.step_worth(status.job.owner),
        may_wait=may_wait,
    )
    movable = not fixed and not owed.rests
    missed_j = settings.allocation.missed_promise_w * settings.allocation.move_s
    priority = waiting_priority(status, settings, now, guarded=service.guarded(status))
    job = _job(status, at, owed, priority, now, missed_j)
    if owed.later is not None:
        # It waits by choice, for longer than this window: the stop is paid once for all of it.
        share = outlook.window_s / max(outlook.window_s, owed.later.wait_s)
        job = replace(job, priority=0.0, move_cost_j=share * job.move_cost_j)
    return replace(job, pinned=pinned, movable=movable), owed


def _place(status: JobStatus, here: Mapping[str, ProblemServer]) -> tuple[Slot, ...]:
    """Where the job runs now; a job on a server that is lost or off has to be started again."""
    for slot in status.slots:
        server = here.get(slot.server)
        if server is None or not server.on or max(slot.gpus) >= server.gpus:
            return ()
    return status.slots


def _job(
    status: JobStatus,
    at: tuple[Slot, ...],
    owed: Promise,
    priority: float,
    now: datetime,
    missed_j: float,
) -> ProblemJob:
    job = status.job
    since_s = moved_ago_s = None
    if at and status.since is not None:
        since_s = max(0.0, (now - status.since).total_seconds())
    if at and status.moved_at is not None:
        moved_ago_s = max(0.0, (now - status.moved_at).total_seconds())
    return ProblemJob(
        id=job.id,
        job_class=job.job_class,
        mode="spread" if job.mode is Mode.SPREAD else "gang",
        gpu_counts=tuple(sorted(set(job.gpu_counts))),
        max_gpus=job.max_gpus,
        required_throughput=owed.required_throughput,
        priority=priority,
        shareable=job.shareable,
        at=at,
        move_cost_j=float(job.move_cost_j) + (missed_j if owed.promised > 0 else 0.0),
        owner=job.owner,
        since_s=since_s,
        moved_ago_s=moved_ago_s,
        moves=status.moves,
        surplus_j_per_step=owed.surplus_j_per_step,
    )
