"""What can be wrong with a problem as a whole; every fault is found, none is raised here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gogh_core.allocation.options import MOST_GPUS

if TYPE_CHECKING:
    from gogh_core.allocation.problem import Problem, ProblemJob, ProblemServer

__all__ = ["can_hold", "faults_of"]


def faults_of(problem: Problem) -> list[str]:
    """Every fault of the problem, in a fixed order."""
    found: list[str] = []
    for check in _CHECKS:
        found.extend(check(problem))
    return found


def _numbers(problem: Problem) -> Iterable[str]:
    if not (math.isfinite(problem.window_s) and problem.window_s >= 1e-3):
        yield f"window_s is {problem.window_s}, not a number > 0 (of at least a millisecond)"
    if not (math.isfinite(problem.waiting_penalty_w) and problem.waiting_penalty_w >= 0):
        yield f"waiting_penalty_w is {problem.waiting_penalty_w}, not a number >= 0"
    for name, idle in problem.gpu_types.items():
        if not (math.isfinite(idle) and idle >= 0):
            yield f"gpu_types[{name!r}]: idle_w is {idle}, not a number >= 0"
    if problem.power_cap_w is not None and not problem.power_cap_w >= 0:
        yield f"power_cap_w is {problem.power_cap_w}, not a number >= 0"
    if problem.max_moves is not None and problem.max_moves < 0:
        yield f"max_moves is {problem.max_moves}, not a number >= 0"
    for owner, quota in problem.quotas.items():
        if quota < 0:
            yield f"quotas[{owner!r}] is {quota}, not a number >= 0"


def _names(problem: Problem) -> Iterable[str]:
    for noun, names in (
        ("server", [server.id for server in problem.servers]),
        ("job", [job.id for job in problem.jobs]),
    ):
        for name, count in sorted(Counter(names).items()):
            if not name:
                yield f"a {noun} has an empty id"
            elif count > 1:
                yield f"{noun} {name} is listed {count} times"


def _servers(problem: Problem) -> Iterable[str]:
    gpus = sum(server.gpus for server in problem.servers)
    if gpus > MOST_GPUS:
        yield f"the servers have {gpus} GPUs together, more than {MOST_GPUS}"
    for server in problem.servers:
        where = f"server {server.id}"
        if server.gpu_type not in problem.gpu_types:
            yield f"{where}: gpu_type {server.gpu_type!r} is not among gpu_types"
        if server.gpus < 1:
            yield f"{where}: has {server.gpus} GPUs"
        for name in ("base_w", "off_w", "switch_cost_j"):
            value = getattr(server, name)
            if not (math.isfinite(value) and value >= 0):
                yield f"{where}: {name} is {value}, not a number >= 0"


def _options(problem: Problem) -> Iterable[str]:
    yield from problem.table.faults()
    for name in problem.table.types:
        if name not in problem.gpu_types:
            yield f"options name the gpu_type {name!r}, which is not among gpu_types"


def _jobs(problem: Problem) -> Iterable[str]:
    classes = set(problem.table.classes)
    sizes = _sizes(problem.servers)
    held: dict[int, bool] = {}
    for job in problem.jobs:
        where = f"job {job.id}"
        if job.job_class not in classes:
            yield f"{where}: class {job.job_class!r} is in no option"
        for name in ("required_throughput", "priority", "move_cost_j", "surplus_j_per_step"):
            value = getattr(job, name)
            if not (math.isfinite(value) and value >= 0):
                yield f"{where}: {name} is {value}, not a number >= 0"
        if job.mode == "spread":
            if job.max_gpus < 1:
                yield f"{where}: max_gpus is {job.max_gpus}, not a number from 1"
            continue
        if not job.gpu_counts or min(job.gpu_counts) < 1:
            yield f"{where}: gpu_counts {list(job.gpu_counts)} are not numbers from 1"
            continue
        for count in job.gpu_counts:
            if count not in held:
                held[count] = any(can_hold(count, each) for each in sizes.values())
        if not any(held[count] for count in job.gpu_counts):
            yield (
                f"{where}: no number of servers can hold a gang of "
                f"{' or '.join(str(count) for count in job.gpu_counts)}"
            )


def _places(problem: Problem) -> Iterable[str]:
    servers = {server.id: server for server in problem.servers}
    users: dict[tuple[str, int], list[str]] = {}
    for job in problem.jobs:
        yield from _place(job, servers)
        for gpu in sorted(job.place):
            users.setdefault(gpu, []).append(job.id)
        if job.pinned and not job.at:
            yield f"job {job.id}: is pinned but runs nowhere"
    for place, names in sorted(users.items()):
        if len(names) > 2:
            where = f"GPU {place[1]} of server {place[0]}"
            yield f"{where} has {len(names)} jobs now: {', '.join(names)}"


def _place(job: ProblemJob, servers: dict[str, ProblemServer]) -> Iterable[str]:
    where = f"job {job.id}"
    types = set()
    listed = [(slot.server, gpu) for slot in job.at for gpu in slot.gpus]
    if len(listed) != len(set(listed)):
        yield f"{where}: at names a GPU twice"
    for slot in job.at:
        server = servers.get(slot.server)
        if server is None:
            yield f"{where}: runs on server {slot.server}, which is not listed"
            continue
        types.add(server.gpu_type)
        if slot.gpus and max(slot.gpus) >= server.gpus:
            yield (
                f"{where}: runs on GPU {max(slot.gpus)} of server {slot.server}, "
                f"which has {server.gpus}"
            )
        if not server.on:
            yield f"{where}: runs on server {slot.server}, which is off"
    if job.mode == "gang" and len(types) > 1:
        yield f"{where}: a gang runs on GPUs of several types: {', '.join(sorted(types))}"


def _sizes(servers: Iterable[ProblemServer]) -> dict[str, Counter[int]]:
    sizes: dict[str, Counter[int]] = {}
    for server in servers:
        sizes.setdefault(server.gpu_type, Counter())[server.gpus] += 1
    return sizes


def can_hold(count: int, sizes: Counter[int]) -> bool:
    """Whether servers of these sizes can hold a gang: on one, or filling whole ones."""
    if not sizes:
        return False
    if count <= max(sizes):
        return True
    reachable = {0}
    for size, number in sizes.items():
        reachable = {
            total + size * taken
            for total in reachable
            for taken in range(number + 1)
            if total + size * taken <= count
        }
    return count in reachable


_CHECKS: tuple[Callable[[Problem], Iterable[str]], ...] = (
    _numbers,
    _names,
    _servers,
    _options,
    _jobs,
    _places,
)
