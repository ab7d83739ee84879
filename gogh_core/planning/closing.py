"""Servers that will be drained: only jobs that are done by then start there.

The planner chooses options by GPU type and class. So servers that close at the same time become a
GPU type of their own (`v100 until 2026-01-05 14:00`), and jobs that may use it a class of their
own, with the options that let them end in time. What comes out is an ordinary problem: solver,
bound and verifier need to know nothing of maintenance.

- A job that is not there starts there alone, by options that surely end it in time.
- A job that runs there may stay until the last plan before the server closes, and then only if it
  ends in time where it is.
- Jobs that have no number of steps (serving jobs among them) are never done in time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt

from gogh_core.allocation import OptionTable, Problem, ProblemJob, ProblemServer, can_hold
from gogh_core.domain import JobKind, JobStatus
from gogh_core.planning.orders import shown
from gogh_core.planning.promises import DEADLINE_MARGIN, steps_left
from gogh_core.planning.ways import Rate

__all__ = ["Closed", "Paces", "close"]

Ints = npt.NDArray[np.int64]
Rows = tuple[int, ...] | None
"""Option rows by which a job may run on servers that close; None: by every option there is."""


@dataclass(frozen=True)
class Paces:
    """How fast a job must be to end before a server closes, and how fast it is where it runs."""

    steps_left: Mapping[str, float]
    """Of jobs that end by themselves, with what is to spare."""
    here: Mapping[str, float]
    """Throughput where each running job is."""

    @classmethod
    def of(cls, live: Mapping[str, JobStatus], here: Mapping[str, Rate | None]) -> Paces:
        """Of the jobs of a cluster; `here` is what they get where they run."""
        left = {
            name: DEADLINE_MARGIN * steps
            for name, status in live.items()
            if status.job.descriptors.kind is JobKind.TRAINING
            and (steps := steps_left(status)) is not None
        }
        return cls(left, {name: rate.mean for name, rate in here.items() if rate is not None})


@dataclass(frozen=True)
class Closed:
    """The problem to be solved, and whom the closing servers concern."""

    problem: Problem
    leaving: frozenset[str] = frozenset()
    """Running jobs that must leave their server before it closes."""
    homeless: frozenset[str] = frozenset()
    """Waiting gangs that no servers can hold without those that close; not in the problem."""
    barred: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By job the GPU types of closing servers where it may not start."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Servers of one GPU type that close at one time."""

    name: str
    gpu_type: str
    seconds: float
    servers: frozenset[str]


def close(
    problem: Problem, closes_at: Mapping[str, datetime], now: datetime, paces: Paces
) -> Closed:
    """The problem in which each job uses closing servers only as long as it may."""
    groups = _groups(problem, closes_at, now)
    if not groups:
        return Closed(problem)
    servers = _renamed(problem.servers, groups)
    alone = _alone_rows(problem.table)
    leaving: set[str] = set()
    barred: dict[str, frozenset[str]] = {}
    ways: dict[str, tuple[Rows, ...]] = {}
    for job in problem.jobs:
        mine = [_ways(job, group, problem, alone, paces, leaving) for group in groups]
        ways[job.id] = tuple(mine)
        shut = {g.gpu_type for g, way in zip(groups, mine, strict=True) if way == ()}
        barred[job.id] = frozenset(shut)
    homeless = _homeless(problem.jobs, servers)
    kept = [job for job in problem.jobs if job.id not in homeless]
    classes, variants = _variants(kept, ways, problem.table.classes)
    idle = {group.name: problem.gpu_types[group.gpu_type] for group in groups}
    posed = replace(
        problem,
        gpu_types={**problem.gpu_types, **idle},
        servers=servers,
        jobs=[replace(job, job_class=classes[job.id]) for job in kept],
        options=_options(problem.table, groups, variants),
    )
    return Closed(posed, frozenset(leaving), homeless, barred)


def _groups(
    problem: Problem, closes_at: Mapping[str, datetime], now: datetime
) -> tuple[_Group, ...]:
    """Closing servers by type and time; servers that one gang fills close together."""
    times = {
        server.id: closes_at[server.id] for server in problem.servers if server.id in closes_at
    }
    gangs = [sorted({slot.server for slot in job.at}) for job in problem.jobs if job.mode == "gang"]
    changed = bool(times)
    while changed:
        changed = False
        for names in gangs:
            first = min((times[name] for name in names if name in times), default=None)
            if first is not None and any(times.get(name) != first for name in names):
                times.update(dict.fromkeys(names, first))
                changed = True
    found: dict[tuple[str, datetime], set[str]] = {}
    for name, at in times.items():
        found.setdefault((problem.server_of[name].gpu_type, at), set()).add(name)
    return tuple(
        _Group(f"{kind} until {shown(at)}", kind, (at - now).total_seconds(), frozenset(names))
        for (kind, at), names in sorted(found.items())
    )


def _renamed(servers: Sequence[ProblemServer], groups: Sequence[_Group]) -> list[ProblemServer]:
    names = {server: group.name for group in groups for server in group.servers}
    return [replace(server, gpu_type=names.get(server.id, server.gpu_type)) for server in servers]


def _alone_rows(table: OptionTable) -> dict[tuple[str, str], list[int]]:
    """Rows of jobs that run alone, by GPU type and class."""
    found: dict[tuple[str, str], list[int]] = {}
    for row in np.flatnonzero(table.class_b < 0).tolist():
        key = (table.types[table.type_id[row]], table.classes[table.class_a[row]])
        found.setdefault(key, []).append(row)
    return found


def _ways(
    job: ProblemJob,
    group: _Group,
    problem: Problem,
    alone: Mapping[tuple[str, str], list[int]],
    paces: Paces,
    leaving: set[str],
) -> Rows:
    """By which rows a job may run on servers of the group."""
    needed = paces.steps_left.get(job.id, float("inf")) / group.seconds
    if any(slot.server in group.servers for slot in job.at):
        in_time = paces.here.get(job.id, 0.0) >= needed
        if job.pinned or group.seconds >= problem.window_s or in_time:
            return None
        leaving.add(job.id)
        return ()
    if job.mode == "spread":
        return ()
    table = problem.table
    return tuple(
        row
        for row in alone.get((group.gpu_type, job.job_class), [])
        if int(table.gpus[row]) in job.gpu_counts and float(table.throughput_a[row]) >= needed
    )


def _homeless(jobs: Sequence[ProblemJob], servers: Sequence[ProblemServer]) -> frozenset[str]:
    """Waiting gangs that fit no servers of one type any more."""
    sizes: dict[str, Counter[int]] = {}
    for server in servers:
        sizes.setdefault(server.gpu_type, Counter())[server.gpus] += 1

    def held(job: ProblemJob) -> bool:
        return any(can_hold(count, each) for count in job.gpu_counts for each in sizes.values())

    gangs = [job for job in jobs if job.mode == "gang"]
    return frozenset(job.id for job in gangs if not job.at and not held(job))


@dataclass(frozen=True)
class _Variants:
    """The classes by which jobs go into the problem: `of[class]` are numbers in `names`."""

    names: list[str]
    of: list[list[int]]
    ways: list[tuple[Rows, ...]]
    """By variant, for each group."""


def _variants(
    jobs: Collection[ProblemJob],
    ways: Mapping[str, tuple[Rows, ...]],
    classes: Sequence[str],
) -> tuple[dict[str, str], _Variants]:
    """Jobs of one class that may do the same are of one variant; the plain one keeps its name."""
    wanted: dict[str, set[tuple[Rows, ...]]] = {}
    for job in jobs:
        wanted.setdefault(job.job_class, set()).add(ways[job.id])
    number: dict[tuple[str, tuple[Rows, ...]], int] = {}
    found = _Variants([], [], [])
    for name in classes:
        mine = sorted(wanted.get(name, ()), key=lambda way: (any(w != () for w in way), str(way)))
        found.of.append([])
        for rank, way in enumerate(mine):
            plain = all(rows == () for rows in way)
            number[name, way] = len(found.names)
            found.of[-1].append(len(found.names))
            found.names.append(name if plain else f"{name} / {rank + 1}")
            found.ways.append(way)
    names = {job.id: found.names[number[job.job_class, ways[job.id]]] for job in jobs}
    return names, found


def _options(table: OptionTable, groups: Sequence[_Group], variants: _Variants) -> OptionTable:
    """Every option for every variant of its classes, and on closing servers what they may use."""
    rows, first, second = _crossed(table, variants.of)
    types = list(table.types)
    parts = [(rows, first, second, table.type_id[rows])]
    for at, group in enumerate(groups):
        kind = types.index(group.gpu_type) if group.gpu_type in types else -1
        stays = np.array([way[at] is None for way in variants.ways], dtype=bool)
        some = [set(way[at] or ()) for way in variants.ways]
        here = np.flatnonzero(table.type_id[rows] == kind)
        pairs = second[here] >= 0
        keep = stays[first[here]] & (~pairs | stays[second[here]])
        for index in np.flatnonzero(~pairs & ~keep).tolist():
            keep[index] = int(rows[here[index]]) in some[first[here[index]]]
        here = here[keep]
        parts.append((rows[here], first[here], second[here], np.full(len(here), len(types) + at)))
    row, a, b, type_id = (np.concatenate(part) for part in zip(*parts, strict=True))
    return OptionTable(
        [*types, *(group.name for group in groups)],
        variants.names,
        type_id.astype(np.int64),
        table.gpus[row],
        a,
        b,
        table.throughput_a[row],
        table.throughput_b[row],
        table.power_w[row],
        table.limit_w[row],
    )


def _crossed(table: OptionTable, of: Sequence[Sequence[int]]) -> tuple[Ints, Ints, Ints]:
    """Each row with every variant of its classes: (row, first variant, second or -1)."""
    most = max((len(mine) for mine in of), default=0)
    numbers = np.full((len(of) + 1, most), -1, dtype=np.int64)
    for at, mine in enumerate(of):
        numbers[at, : len(mine)] = mine
    a, b = table.class_a, table.class_b
    pair = b >= 0
    found: list[tuple[Ints, Ints, Ints]] = []
    for i in range(most):
        rows = np.flatnonzero(~pair & (numbers[a, i] >= 0))
        found.append((rows, numbers[a[rows], i], np.full(len(rows), -1, dtype=np.int64)))
        for j in range(most):
            # A pair of one class has no order: its variants are crossed once.
            both = pair & (numbers[a, i] >= 0) & (numbers[b, j] >= 0) & ((a != b) | (i <= j))
            rows = np.flatnonzero(both)
            found.append((rows, numbers[a[rows], i], numbers[b[rows], j]))
    if not found:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, empty
    rows, first, second = (np.concatenate(part) for part in zip(*found, strict=True))
    return rows, first, second
