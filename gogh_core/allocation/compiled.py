"""A problem as numbers: what the greedy rule, the column generation and the mapping work on.

Kinds are servers that are the same to the planner; sides are the places in an option that one
job fills (a pair has two); groups are jobs that can do exactly the same things at the same cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.held import stop_costs
from gogh_core.allocation.problem import Gpu, Problem, ProblemJob, ProblemServer

__all__ = ["Cell", "Compiled", "Group", "Kind", "Seat", "Seats", "need_of"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def need_of(required: Any) -> Any:
    """The throughput that counts as reaching the requirement (rounding in sums is forgiven)."""
    return required * (1 - 1e-9) - 1e-9


@dataclass(slots=True)
class Kind:
    """Servers that are the same to the planner; `use_w` is what using one adds to the cost."""

    index: int
    gpu_type: int
    size: int
    power_w: float
    other_w: float
    servers: list[str] = field(default_factory=list)

    @property
    def use_w(self) -> float:
        """Watts that one server in use adds to the objective."""
        return self.power_w + self.other_w


@dataclass(slots=True)
class Cell:
    """GPUs of one server that the same running jobs sit on."""

    server: str
    kind: int
    gpus: tuple[int, ...]
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Seat:
    """A job on GPUs by an option row, sharing with `partner` (-1: alone)."""

    job: int
    slots: tuple[tuple[str, tuple[int, ...]], ...]
    row: int
    partner: int = -1

    @property
    def gpus(self) -> frozenset[Gpu]:
        """The GPUs it sits on."""
        return frozenset((server, gpu) for server, gpus in self.slots for gpu in gpus)


Seats = dict[int, list[Seat]]
"""Seats by job; a gang has one, a spread job one for each GPU, a waiting job none."""


@dataclass(slots=True)
class Group:
    """Jobs that can do the same at the same cost; `usable` is over the sides of their class."""

    index: int
    jobs: list[int]
    cls: int
    usable: Bools

    @property
    def count(self) -> int:
        """How many jobs it has."""
        return len(self.jobs)

    @property
    def first(self) -> int:
        """A job that stands for all."""
        return self.jobs[0]


class Compiled:
    """Everything derived from a problem once."""

    def __init__(self, problem: Problem, *, by_server: bool = False, guarded: bool = True) -> None:
        """`guarded` False leaves out the guidance: what a proof needs, which is of the cost."""
        self.problem = problem
        self.guarded = guarded
        self.table = table = problem.table
        self.by_server = by_server
        self._stays: dict[int, tuple[int, int] | None] = {}
        self.idle = np.array([problem.gpu_types[name] for name in table.types] or [0.0])
        self.largest = np.array([problem.largest.get(name, 0) for name in table.types] or [0])
        self.type_index = {name: i for i, name in enumerate(table.types)}
        self.net_w = table.power_w - table.gpus * self.idle[table.type_id]
        self.pair = table.class_b >= 0
        self.own = table.class_a == table.class_b
        self._kinds()
        self._jobs()
        self._sides()
        self._cells()

    def _kinds(self) -> None:
        problem = self.problem
        self.kinds: list[Kind] = []
        self.kind_of: dict[str, int] = {}
        self.fixed_power_w = self.fixed_w = 0.0
        seen: dict[tuple[Any, ...], int] = {}
        for server in problem.servers:
            on_w, on_extra, off_w, off_extra = server_costs(problem, server)
            self.fixed_power_w += off_w
            self.fixed_w += off_w + off_extra
            if server.drain or server.gpu_type not in self.type_index:
                continue
            key: tuple[Any, ...] = (server.id,)
            if not self.by_server:
                key = (server.gpu_type, server.gpus, server.base_w, server.off_w)
                key += (server.switch_cost_j, server.on, server.keep_on)
            if key not in seen:
                seen[key] = len(self.kinds)
                kind = Kind(
                    len(self.kinds),
                    self.type_index[server.gpu_type],
                    server.gpus,
                    on_w - off_w,
                    on_extra - off_extra,
                )
                self.kinds.append(kind)
            self.kinds[seen[key]].servers.append(server.id)
            self.kind_of[server.id] = seen[key]

    def _jobs(self) -> None:
        problem = self.problem
        jobs = problem.jobs
        class_index = {name: i for i, name in enumerate(self.table.classes)}
        self.cls = np.array([class_index[job.job_class] for job in jobs], dtype=np.int64)
        self.required = np.array([job.required_throughput for job in jobs])
        self.running = np.array([bool(job.at) for job in jobs], dtype=bool)
        self.move_w = np.array([job.move_cost_j / problem.window_s for job in jobs])
        self.stated_move_w = self.move_w * self.running
        self.guard_w = np.zeros(len(jobs))
        if self.guarded:
            self.guard_w = np.array([guard_w(problem, job) for job in jobs]) * self.running
        self.move_w = self.stated_move_w + self.guard_w
        free = [not (job.at and (job.pinned or not job.movable)) for job in jobs]
        self.free = np.array(free, dtype=bool)
        self.surplus = np.array([job.surplus_j_per_step for job in jobs])
        self.spread = np.array([job.mode == "spread" for job in jobs], dtype=bool)
        self.wait_w = np.array([job.priority * problem.waiting_penalty_w for job in jobs])
        self.wait_w = self.wait_w + self.move_w
        self.priorities = sorted({job.priority for job in jobs})
        owners = sorted({job.owner for job in jobs if job.shareable == "owner"})
        self.realms: list[str | None] = [None, *owners]
        realm_of = {owner: r + 1 for r, owner in enumerate(owners)}
        self.job_realms: list[tuple[int, ...]] = []
        for job in jobs:
            own = (realm_of[job.owner],) if job.owner in realm_of else ()
            if job.shareable is True:
                self.job_realms.append((0, *own))
            else:
                self.job_realms.append(own if job.shareable == "owner" else ())
        self.owners = tuple(problem.quotas)
        owner_of = {owner: i for i, owner in enumerate(self.owners)}
        self.owner = np.array([owner_of.get(job.owner, -1) for job in jobs], dtype=np.int64)

    def _sides(self) -> None:
        table = self.table
        second = np.flatnonzero(self.pair & ~self.own)
        rows = np.concatenate([np.arange(len(table)), second])
        side = np.concatenate([np.zeros(len(table), np.int8), np.ones(len(second), np.int8)])
        cls = np.concatenate([table.class_a, table.class_b[second]])
        order = np.lexsort((side, rows, cls))
        self.side_row = rows[order]
        self.side_no = side[order]
        got_a, got_b = table.throughput_a[self.side_row], table.throughput_b[self.side_row]
        self.side_got = np.where(self.side_no == 0, got_a, got_b)
        self.cls_start = np.searchsorted(cls[order], np.arange(len(table.classes) + 1))
        self.counts = np.unique(table.gpus) if len(table) else np.array([1])

    def _cells(self) -> None:
        users: dict[Gpu, list[int]] = {}
        for index, job in enumerate(self.problem.jobs):
            for gpu in job.place:
                if gpu[0] in self.kind_of:
                    users.setdefault(gpu, []).append(index)
        grouped: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for place in sorted(users):
            grouped.setdefault((place[0], tuple(users[place])), []).append(place[1])
        self.cells = [
            Cell(server, self.kind_of[server], tuple(gpus), jobs)
            for (server, jobs), gpus in grouped.items()
        ]
        self.cells_of: dict[int, list[int]] = {}
        self.cell_at: dict[Gpu, int] = {}
        for index, cell in enumerate(self.cells):
            for at in cell.gpus:
                self.cell_at[cell.server, at] = index
            for j in cell.jobs:
                self.cells_of.setdefault(j, []).append(index)

    def sides(self, cls: int) -> slice:
        """The sides of a class."""
        return slice(int(self.cls_start[cls]), int(self.cls_start[cls + 1]))

    @cached_property
    def members(self) -> dict[int, list[int]]:
        """Jobs by class."""
        found: dict[int, list[int]] = {}
        for j, c in enumerate(self.cls.tolist()):
            found.setdefault(c, []).append(j)
        return dict(sorted(found.items()))

    def usable_of(self, cls: int, jobs: list[int]) -> Bools:
        """[jobs, sides of the class]: whether the job may fill the side."""
        here = self.sides(cls)
        rows = self.side_row[here]
        got = self.side_got[here]
        position = np.searchsorted(self.counts, self.table.gpus[rows])
        problem = self.problem
        allowed = np.zeros((len(jobs), len(self.counts)), dtype=bool)
        wanted: dict[tuple[int, ...], Bools] = {}
        for at, j in enumerate(jobs):
            job = problem.jobs[j]
            counts = (1,) if job.mode == "spread" else job.gpu_counts
            if counts not in wanted:
                wanted[counts] = np.isin(self.counts, counts)
            allowed[at] = wanted[counts]
        js = np.array(jobs)
        # A slot of a spread job has to do with the best ones for all the others.
        fastest = float(got[self.table.gpus[rows] == 1].max(initial=0.0))
        gpus = sum(kind.size * len(kind.servers) for kind in self.kinds)
        slots = np.minimum([problem.jobs[j].max_gpus for j in jobs], gpus)
        others = np.where(self.spread[js], (slots - 1) * fastest, 0.0)
        enough = got[None, :] + others[:, None] >= need_of(self.required[js])[:, None]
        usable: Bools = allowed[:, position] & enough
        alone = ~self.pair[rows]
        shares = np.array([bool(self.job_realms[j]) for j in jobs])
        usable &= alone[None, :] | shares[:, None]
        # Who waits finds no place where more is lost by whoever may not move and has to go.
        stop_w = np.array(
            [
                self.stop_w.get((int(self.table.type_id[r]), int(self.table.gpus[r])), 0.0)
                for r in rows
            ]
        )
        gain_w = self.wait_w[js][:, None] - self.net_w[rows][None, :]
        held = (alone & (stop_w > 0))[None, :] & ~self.running[js][:, None]
        usable &= ~(held & (stop_w[None, :] >= gain_w))
        return usable

    @cached_property
    def stop_w(self) -> dict[tuple[int, int], float]:
        """(type, GPUs): what stopping who may not move costs for so many GPUs of one server."""
        return stop_costs(self)

    @cached_property
    def groups(self) -> list[Group]:
        """Jobs that can do exactly the same things at the same cost."""
        found: list[Group] = []
        for cls, jobs in self.members.items():
            usable = self.usable_of(cls, jobs)
            packed = np.packbits(usable, axis=1)
            index: dict[tuple[Any, ...], Group] = {}
            for at, j in enumerate(jobs):
                key = (packed[at].tobytes(), *self._likeness(j))
                group = index.get(key)
                if group is None:
                    group = Group(len(found), [], cls, usable[at])
                    index[key] = group
                    found.append(group)
                group.jobs.append(j)
        return found

    def _likeness(self, j: int) -> tuple[Any, ...]:
        """What else makes two jobs the same; a running job is only like itself."""
        job = self.problem.jobs[j]
        required: tuple[Any, ...] = ()
        if self.surplus[j] > 0 or self.spread[j]:
            required = (self.surplus[j], job.required_throughput, job.max_gpus, job.mode)
        place = j if self.running[j] else -1
        worth = (job.priority, self.wait_w[j])
        return (worth, self.job_realms[j], int(self.owner[j]), place, required)

    @cached_property
    def group_of(self) -> Ints:
        """The group of each job."""
        result = np.empty(len(self.cls), dtype=np.int64)
        for group in self.groups:
            result[group.jobs] = group.index
        return result

    @cached_property
    def lone(self) -> Ints:
        """[side, option row]: by which row who is on that side of a pair runs if nobody comes.

        It is as fast at least and draws no more; -1 where there is no such row.
        """
        table = self.table
        found = np.full((2, len(table)), -1, dtype=np.int64)
        alone: dict[tuple[int, int, int], list[int]] = {}
        for row in np.flatnonzero(~self.pair).tolist():
            key = (int(table.class_a[row]), int(table.type_id[row]), int(table.gpus[row]))
            alone.setdefault(key, []).append(row)
        for row in np.flatnonzero(self.pair).tolist():
            what = int(table.type_id[row]), int(table.gpus[row])
            sides = (
                (int(table.class_a[row]), float(table.throughput_a[row])),
                (int(table.class_b[row]), float(table.throughput_b[row])),
            )
            for side, (cls, got) in enumerate(sides):
                good = [
                    mine
                    for mine in alone.get((cls, *what), ())
                    if table.throughput_a[mine] >= got and self.net_w[mine] <= self.net_w[row]
                ]
                if good:
                    found[side][row] = min(good, key=lambda mine: (self.net_w[mine], mine))
        return found

    def rows_of(self, j: int) -> tuple[slice, Bools, Ints]:
        """(sides, which of them are usable, their option rows) of a job."""
        here = self.sides(int(self.cls[j]))
        return here, self.groups[self.group_of[j]].usable, self.side_row[here]

    def kinds_with(self, gpu_type: int) -> list[int]:
        """The kinds of servers with GPUs of a type."""
        return [kind.index for kind in self.kinds if kind.gpu_type == gpu_type]

    def stay_of(self, j: int) -> tuple[int, int] | None:
        """(GPU type, GPUs) of a running job's place if it may stay there."""
        if j not in self._stays:
            self._stays[j] = self._stay_of(j)
        return self._stays[j]

    def _stay_of(self, j: int) -> tuple[int, int] | None:
        job = self.problem.jobs[j]
        if not job.at or any(server not in self.kind_of for server, _ in job.place):
            return None
        servers = {server for server, _ in job.place}
        t = self.type_index[self.problem.server_of[min(servers)].gpu_type]
        m = len(job.place)
        if job.mode == "spread":
            return (t, m) if m <= job.max_gpus else None
        if m not in job.gpu_counts:
            return None
        if m <= self.largest[t]:
            return (t, m) if len(servers) == 1 else None
        full = sum(self.problem.server_of[server].gpus for server in servers)
        return (t, m) if full == m else None

    def consent(self, i: int, j: int) -> bool:
        """Whether two jobs may share a GPU."""
        return i != j and bool(set(self.job_realms[i]) & set(self.job_realms[j]))


def guard_w(problem: Problem, job: ProblemJob) -> float:
    """What is added to a move so that a job that just started or moved is left alone.

    Guidance only: it steers the search and is no part of a plan's cost. It is as much as leaving
    the job waiting, so only a job that would wait otherwise is moved; afterwards it fades with
    the job's age and grows with the times it was moved.
    """
    limits = problem.limits
    young = job.since_s is not None and job.since_s < limits.min_runtime_s
    fresh = job.moved_ago_s is not None and job.moved_ago_s < limits.cooldown_s
    if young or fresh:
        return job.priority * problem.waiting_penalty_w
    if limits.min_runtime_s <= 0 and limits.cooldown_s <= 0:
        return 0.0
    age = 1.0 if job.since_s is None else limits.min_runtime_s / max(job.since_s, 1e-9)
    return 0.1 * job.move_cost_j / problem.window_s * (min(age, 1.0) + job.moves)


def server_costs(problem: Problem, server: ProblemServer) -> tuple[float, float, float, float]:
    """Watts and switching of a server with jobs, then without: (power, extra, power, extra)."""
    on_w = server.base_w + server.gpus * problem.gpu_types[server.gpu_type]
    switch = server.switch_cost_j / problem.window_s
    on_extra = 0.0 if server.on else switch
    if server.keep_on:
        return on_w, on_extra, on_w, on_extra
    return on_w, on_extra, server.off_w, switch if server.on else 0.0
