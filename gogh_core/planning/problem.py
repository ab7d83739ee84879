"""From the cluster's state and the options at the chosen confidence to a problem.

`build_problem` is pure: the same state, options, settings, request and time give the same problem.
The rules, each a small function:

- a job that runs keeps twice its priority; one that waits doubles it for each `priority_age_s` it
  waits, so that it overtakes a running equal after one such time and nobody starves;
- a deadline asks for the steps that are left over the time that is left; one that cannot be met
  any more becomes best effort, and says so;
- a promise is kept at the chosen confidence where that is possible; a job that finds no such place
  (or already runs where it likely gets enough) is planned on the average; where nothing keeps the
  promise it gets nearly the best there is. The plan names these jobs;
- a class that nowhere surely fits into memory is tried, alone, where it is likeliest to;
- best effort requires nothing; a step is worth what it costs on the job's most efficient option,
  so that it runs where a step costs least, and not slowly where a second does;
- GPUs that are dead or taken by others are held by a job of nobody that is pinned there;
- a running job that cannot be planned (its record is held back, nothing is known of its class, it
  shares a GPU with such a one) is left alone in the same way; a waiting one waits, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import pyarrow as pa

from gogh_core import hardware
from gogh_core.allocation import Limits, Problem, ProblemJob, ProblemServer
from gogh_core.cluster import Capabilities
from gogh_core.domain import (
    ClusterState,
    JobState,
    JobStatus,
    Mode,
    PowerState,
    Slot,
    Waiting,
)
from gogh_core.planning.alone import foreign, taken_gpus, unplannable
from gogh_core.planning.promises import Promise, promise, told, waiting_priority
from gogh_core.planning.request import Request
from gogh_core.planning.ways import Rate, Spot, Ways
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
    relax: Collection[str] = (),
) -> Draft:
    """The problem of what is left of a window.

    `options` is a table as `ways` describes it; `held` are jobs whose records broke their contract;
    `relax` are those that found no place where their promise is sure.
    """
    request.check(state)
    notes: list[str] = []
    servers = _servers(state, request, capabilities)
    here = {server.id: server for server in servers}
    types = {server.gpu_type for server in servers}
    live = {status.job.id: status for status in state.jobs if status.state in _LIVE}
    at = {name: _place(status, here) for name, status in live.items()}
    spots = _spots(live, at, here)
    in_use = {spot for mine in spots.values() for spot in mine}
    ways = Ways.of(options, settings, capabilities, types, in_use)
    faults = unplannable(live, at, here, ways.classes, held=held, state=state)
    rates = ways.here(in_use)
    kinds: dict[str, str] = {}
    promised: dict[str, float] = {}
    jobs, waiting = [], []
    for name, status in sorted(live.items()):
        if name not in faults:
            owed = promise(
                status,
                ways,
                request.objective,
                now,
                here=_together([rates.get(spot) for spot in spots[name]]),
                relax=name in relax,
                stays=name in request.pin or not _may_move(status, settings, now),
            )
            kinds[name] = owed.kind
            promised[name] = owed.promised
            priority = waiting_priority(status, settings, now)
            job = _job(status, at[name], owed, priority, now)
            pinned = bool(at[name]) and name in request.pin
            movable = _may_move(status, settings, now)
            jobs.append(replace(job, pinned=pinned, movable=movable))
        elif status.slots:
            notes.append(f"job {name} is left alone: {faults[name]}")
        else:
            waiting.append(Waiting(name, faults[name]))
    taken = taken_gpus(state, here, [slot for name in faults for slot in at[name]])
    foreign_jobs, foreign_options = foreign(taken, here)
    moves = [settings.guards.max_moves, settings.allocation.max_moves, request.max_moves]
    problem = Problem(
        window_s=float(settings.cycle.window_s if window_s is None else window_s),
        waiting_penalty_w=settings.allocation.waiting_penalty_w,
        gpu_types={name: float(hardware.get(name).idle_w) for name in types},
        servers=servers,
        jobs=[*jobs, *foreign_jobs],
        options=ways.with_options(foreign_options),
        power_cap_w=request.power_cap_w or settings.allocation.power_cap_w,
        max_moves=min(limit for limit in moves if limit is not None),
        quotas=settings.allocation.quotas,
        limits=Limits(settings.guards.min_runtime_s, settings.guards.cooldown_s),
        where="problem of this window",
    )
    notes += _tried([live[job.id] for job in jobs if not at[job.id]], ways)
    return Draft(problem, (*told(kinds), *notes), tuple(waiting), kinds, promised)


def _tried(waiting: Sequence[JobStatus], ways: Ways) -> list[str]:
    """Jobs that may run out of memory wherever they are put."""
    return [
        f"job {status.job.id} is tried where it is likeliest to fit "
        f"({ways.tried[status.job.job_class]:.0%})"
        for status in waiting
        if status.job.job_class in ways.tried
    ]


def _servers(
    state: ClusterState, request: Request, capabilities: Capabilities
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
                drain=status.drain or server.id in request.drain or all_taken,
                keep_on=on
                and (
                    status.keep_on or bool(status.foreign_gpus) or not capabilities.switches_servers
                ),
                off_w=float(server.off_w),
                switch_cost_j=float(server.switch_cost_j),
            )
        )
    return servers


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


def _together(rates: Sequence[Rate | None]) -> Rate | None:
    """What the spots of one job give together; None when it runs nowhere, or one is not known."""
    known = [rate for rate in rates if rate is not None]
    if not known or len(known) < len(rates):
        return None
    surely, likely = sum(rate.surely for rate in known), sum(rate.likely for rate in known)
    return Rate(known[0].gpu_type, surely, likely)


def _may_move(status: JobStatus, settings: Settings, now: datetime) -> bool:
    """Whether job and guards allow a move: not while moving, nor too young, nor too soon again."""
    if not status.job.movable or status.state is JobState.MOVING:
        return False
    guards = settings.guards
    if status.slots and status.since is not None:
        runs_s = (now - status.since).total_seconds()
        if runs_s < guards.min_runtime_s:
            return False
    if status.moved_at is None:
        return True
    return (now - status.moved_at).total_seconds() >= guards.cooldown_s


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
        move_cost_j=float(job.move_cost_j),
        owner=job.owner,
        since_s=since_s,
        moved_ago_s=moved_ago_s,
        moves=status.moves,
        surplus_j_per_step=owed.surplus_j_per_step,
    )
