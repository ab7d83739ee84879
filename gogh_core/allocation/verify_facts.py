"""What the bound needs of a problem and no price changes: kinds of servers, cells, classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.problem import Gpu, Problem, ProblemServer

__all__ = ["INF", "Array", "Facts", "JobClass", "Kind"]

Array = npt.NDArray[np.float64]
INF = np.inf


@dataclass(slots=True)
class Kind:
    """Servers that are the same to the planner."""

    gpu_type: int
    size: int
    number: int
    power_w: float
    other_w: float


class Facts:
    """What does not depend on the prices."""

    def __init__(self, problem: Problem, by: str) -> None:
        self.problem = problem
        table = problem.table
        self.window_s = problem.window_s
        self.idle = np.array([problem.gpu_types[name] for name in table.types] or [0.0])
        self.largest = [problem.largest.get(name, 0) for name in table.types]
        self.fixed_power = self.fixed_other = 0.0
        self.kinds: list[Kind] = []
        self.kind_of: dict[str, int] = {}
        self._servers(by)
        self.gpus = sum(kind.size * kind.number for kind in self.kinds)
        pinned = {server for job in problem.jobs if job.pinned for server, _ in job.place}
        self.whole = [
            kind.number - sum(self.kind_of.get(server) == k for server in pinned)
            for k, kind in enumerate(self.kinds)
        ]
        """By kind: servers that somebody who comes could fill as a whole."""
        self._cells()
        self._jobs()
        self._sides()

    def _servers(self, by: str) -> None:
        """What every server costs unused, and what using it adds; equal ones are one kind."""
        types = {name: i for i, name in enumerate(self.problem.table.types)}
        seen: dict[tuple[Any, ...], int] = {}
        for server in self.problem.servers:
            idle = server.gpus * self.problem.gpu_types[server.gpu_type]
            switch = server.switch_cost_j / self.window_s
            used = (server.base_w + idle, 0.0 if server.on else switch)
            unused = used if server.keep_on else (server.off_w, switch if server.on else 0.0)
            self.fixed_power += unused[0]
            self.fixed_other += unused[1]
            if server.drain or server.gpu_type not in types:
                continue
            key = _likeness(server) if by == "likeness" else (server.id,)
            if key not in seen:
                seen[key] = len(self.kinds)
                self.kinds.append(
                    Kind(
                        types[server.gpu_type],
                        server.gpus,
                        0,
                        used[0] - unused[0],
                        used[1] - unused[1],
                    )
                )
            self.kinds[seen[key]].number += 1
            self.kind_of[server.id] = seen[key]

    def _cells(self) -> None:
        """GPUs of one server that the same running jobs sit on."""
        users: dict[Gpu, list[int]] = {}
        for index, job in enumerate(self.problem.jobs):
            for gpu in job.place:
                if gpu[0] in self.kind_of:
                    users.setdefault(gpu, []).append(index)
        cells: dict[tuple[str, tuple[int, ...]], int] = {}
        self.cells_of: dict[int, set[int]] = {}
        self.cell_server: list[str] = []
        self.cell_size: list[int] = []
        self.cell_at: dict[Gpu, int] = {}
        for gpu in sorted(users):
            key = (gpu[0], tuple(users[gpu]))
            if key not in cells:
                cells[key] = len(cells)
                self.cell_server.append(gpu[0])
                self.cell_size.append(0)
            self.cell_at[gpu] = cells[key]
            self.cell_size[cells[key]] += 1
            for index in users[gpu]:
                self.cells_of.setdefault(index, set()).add(cells[key])

    def _jobs(self) -> None:
        jobs = self.problem.jobs
        self.running = np.array([bool(job.at) for job in jobs], dtype=bool)
        self.move_w = np.array([job.move_cost_j / self.window_s for job in jobs]) * self.running
        free = [not (job.at and (job.pinned or not job.movable)) for job in jobs]
        self.free = np.array(free, dtype=bool)
        self.required = np.array([job.required_throughput for job in jobs])
        self.surplus = np.array([job.surplus_j_per_step for job in jobs])
        self.spread = np.array([job.mode == "spread" for job in jobs], dtype=bool)
        self.by_rate = self.spread & (self.required > 0)
        """Who offers for a side by its throughput; where one slot is enough, it has a value."""
        self.wait_w = np.array(
            [INF if job.pinned else job.priority * self.problem.waiting_penalty_w for job in jobs]
        )
        self.wait_w = self.wait_w + self.move_w
        consent = sorted({job.owner for job in jobs if job.shareable == "owner"})
        self.realms: list[str | None] = [None, *consent]
        self.in_realm = np.array(
            [
                [
                    job.shareable is True
                    if realm is None
                    else job.shareable is not False and job.owner == realm
                    for job in jobs
                ]
                for realm in self.realms
            ],
            dtype=bool,
        ).reshape(len(self.realms), len(jobs))

    def _sides(self) -> None:
        """For each class: its jobs, the options it is in, and which job may use which."""
        table, jobs = self.problem.table, self.problem.jobs
        self.by_class: list[JobClass] = []
        index = {name: i for i, name in enumerate(table.classes)}
        members: dict[int, list[int]] = {}
        for j, job in enumerate(jobs):
            members.setdefault(index[job.job_class], []).append(j)
        order_a = np.argsort(table.class_a, kind="stable")
        order_b = np.argsort(table.class_b, kind="stable")
        ids = np.arange(len(table.classes) + 1)
        cut_a = np.searchsorted(table.class_a[order_a], ids)
        cut_b = np.searchsorted(table.class_b[order_b], ids)
        self.pair = table.class_b >= 0
        self.own = table.class_a == table.class_b
        counts = np.unique(table.gpus)
        for c, member in sorted(members.items()):
            first = np.sort(order_a[cut_a[c] : cut_a[c + 1]])
            second = np.sort(order_b[cut_b[c] : cut_b[c + 1]])
            second = second[~self.own[second]]
            rows = np.concatenate([first, second])
            side = np.concatenate([np.zeros(len(first), int), np.ones(len(second), int)])
            got = np.where(side == 0, table.throughput_a[rows], table.throughput_b[rows])
            js = np.array(member)
            allowed = np.array(
                [
                    [
                        (m == 1) if jobs[j].mode == "spread" else m in jobs[j].gpu_counts
                        for m in counts
                    ]
                    for j in member
                ]
            ).reshape(len(member), len(counts))
            usable = allowed[:, np.searchsorted(counts, table.gpus[rows])]
            need = self.required[js] * (1 - 1e-9) - 1e-9
            # A spread job needs what the slots it may have besides this one can give it at most.
            most = [min(jobs[j].max_gpus, self.gpus) if self.spread[j] else 1 for j in member]
            more = np.array(most) - 1
            more = more * got[table.gpus[rows] == 1].max(initial=0.0)
            usable &= got[None, :] >= (need - more)[:, None]
            self.by_class.append(JobClass(js, rows, side, got, usable))


def _likeness(server: ProblemServer) -> tuple[Any, ...]:
    return (
        server.gpu_type,
        server.gpus,
        server.base_w,
        server.off_w,
        server.switch_cost_j,
        server.on,
        server.keep_on,
    )


@dataclass(slots=True)
class JobClass:
    """Jobs of one class and the option sides they could fill."""

    jobs: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    side: npt.NDArray[np.int64]
    throughput: Array
    usable: npt.NDArray[np.bool_]
    """[jobs, sides]"""
