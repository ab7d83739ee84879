"""Why a job waits or is stopped, in one sentence that names the rule that decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.compiled import Compiled, Seats, need_of
from gogh_core.allocation.problem import Gpu, Problem, ProblemJob

__all__ = ["waiting_reasons"]

_NAMED = 3


def waiting_reasons(
    compiled: Compiled, seats: Seats, *, power_w: float, moves: int
) -> dict[int, str]:
    """For every job without a seat what keeps it from running; the plan draws `power_w`."""
    c, room = compiled, _Room.of(compiled, seats, power_w, moves)
    # Jobs of a group wait for the same reason, so it is worked out once.
    known: dict[tuple[int, float], str] = {}
    found = {}
    for j, job in enumerate(c.problem.jobs):
        if j in seats:
            continue
        key = (int(c.group_of[j]), job.required_throughput)
        if job.at or key not in known:
            known[key] = _cannot(c, j) or _must_leave(c, j, room) or _kept_out(c, j, room)
        found[j] = known[key]
    return found


@dataclass(frozen=True, slots=True)
class _Room:
    """What the plan leaves free, by GPU type, and what it has used up."""

    total: npt.NDArray[Any]
    """Free GPUs."""
    most: npt.NDArray[Any]
    """Free GPUs on one server in use."""
    fresh: npt.NDArray[Any]
    """GPUs of the largest server without jobs."""
    fresh_w: npt.NDArray[Any]
    """What the cheapest of those draws when it is on."""
    on_type: dict[int, list[int]]
    """Jobs that run on each type."""
    on_gpu: dict[Gpu, list[int]]
    held: list[int]
    """GPUs by owner."""
    power_w: float
    moves: int

    @classmethod
    def of(cls, c: Compiled, seats: Seats, power_w: float, moves: int) -> _Room:
        on_gpu: dict[Gpu, list[int]] = {}
        on_type: dict[int, list[int]] = {}
        held = [0] * len(c.owners)
        for j in sorted(seats, key=lambda j: (-c.problem.jobs[j].priority, j)):
            gpus = [gpu for seat in seats[j] for gpu in seat.gpus]
            for gpu in gpus:
                on_gpu.setdefault(gpu, []).append(j)
            for t in {int(c.table.type_id[seat.row]) for seat in seats[j]}:
                on_type.setdefault(t, []).append(j)
            if c.owner[j] >= 0:
                held[c.owner[j]] += len(gpus)
        used: dict[str, int] = {}
        for server, _ in on_gpu:
            used[server] = used.get(server, 0) + 1
        total, most, fresh = (np.zeros(len(c.table.types), dtype=np.int64) for _ in range(3))
        fresh_w = np.full(len(c.table.types), np.inf)
        for kind in c.kinds:
            t = kind.gpu_type
            for server in kind.servers:
                free = kind.size - used.get(server, 0)
                total[t] += free
                if server in used:
                    most[t] = max(most[t], free)
                else:
                    fresh[t] = max(fresh[t], free)
                    fresh_w[t] = min(fresh_w[t], kind.power_w)
        return cls(total, most, fresh, fresh_w, on_type, on_gpu, held, power_w, moves)


def _cannot(c: Compiled, j: int) -> str:
    """Why no plan could run it as it is; empty where one could."""
    job = c.problem.jobs[j]
    here = c.sides(int(c.cls[j]))
    rows, got = c.side_row[here], c.side_got[here]
    exists = _exists(c, rows)
    if not exists.any():
        return "no server in use has a GPU type it has an option for"
    if job.mode == "spread":
        best = float(got[exists & ~c.pair[rows]].max(initial=0.0)) * job.max_gpus
        if best < need_of(job.required_throughput):
            return (
                f"needs {job.required_throughput:g}; the most {job.max_gpus} GPUs can give "
                f"is {best:g}"
            )
        return ""
    fits = np.isin(c.table.gpus[rows], job.gpu_counts)
    if not (exists & fits).any():
        return f"no option for {' or '.join(map(str, job.gpu_counts))} GPUs"
    if (c.groups[c.group_of[j]].usable & exists).any():
        return ""
    index = np.flatnonzero(exists & fits)
    best_index = int(index[np.argmax(got[index])])
    name = c.table.types[c.table.type_id[rows[best_index]]]
    if got[best_index] < need_of(job.required_throughput):
        return (
            f"needs {job.required_throughput:g}; the best option is {got[best_index]:g} on {name}"
        )
    if job.at:
        return ""
    return (
        f"needs {int(c.table.gpus[rows[best_index]])} GPUs of one {name} server, "
        "and on each of them are jobs that may not move now"
    )


def _must_leave(c: Compiled, j: int, room: _Room) -> str:
    """Why a running job loses its place and gets no other; empty where it is only outbid."""
    problem, job = c.problem, c.problem.jobs[j]
    drained = sorted({server for server, _ in job.place if problem.server_of[server].drain})
    takers = [i for gpu in job.place for i in room.on_gpu.get(gpu, ())]
    if drained:
        why = f"server {', '.join(drained)} is to be drained"
    elif takers:
        why = f"its GPUs go to jobs that are worth more{_names(problem, takers)}"
    elif job.at and job.mode == "gang" and c.stay_of(j) is None:
        why = "it cannot run as required where it is"
    else:
        return ""
    if not c.free[j]:
        return f"{why}, and it may not move: {_held(problem, job)}"
    if problem.max_moves is not None and room.moves >= problem.max_moves:
        return f"{why}, and the limit of {problem.max_moves} moves is used up"
    return "" if takers else f"{why}, and {_kept_out(c, j, room)}"


def _held(problem: Problem, job: ProblemJob) -> str:
    """The rule by which a running job may not move."""
    limits = problem.limits
    if job.since_s is not None and job.since_s < limits.min_runtime_s:
        return f"it has run for {job.since_s:.0f} s and min_runtime_s is {limits.min_runtime_s:g} s"
    if job.moved_ago_s is not None and job.moved_ago_s < limits.cooldown_s:
        return f"it moved {job.moved_ago_s:.0f} s ago and cooldown_s is {limits.cooldown_s:g} s"
    return "it is not movable"


def _kept_out(c: Compiled, j: int, room: _Room) -> str:
    """Quota, room, power cap or cost: what keeps it from running anywhere."""
    problem, job, owner = c.problem, c.problem.jobs[j], int(c.owner[j])
    rows = c.side_row[c.sides(int(c.cls[j]))]
    rows = rows[c.groups[c.group_of[j]].usable & _exists(c, rows)]
    types, gpus = c.table.type_id[rows], c.table.gpus[rows]
    if owner >= 0 and room.held[owner] + int(gpus.min(initial=1)) > problem.quotas[job.owner]:
        return f"the quota of {job.owner!r} ({problem.quotas[job.owner]} GPUs) is used up"
    whole = (gpus > c.largest[types]) & (room.total[types] >= gpus)
    on = room.most[types] >= gpus
    fits = on | (room.fresh[types] >= gpus) | whole
    if not fits.any():
        return _no_room(c, room, types, gpus)
    alone = fits & ~c.pair[rows]
    added = c.net_w[rows] + np.where(on, 0.0, room.fresh_w[types])
    least_w = float(added[alone].min(initial=np.inf))
    cap_w = problem.power_cap_w
    if cap_w is not None and np.isfinite(least_w) and room.power_w + least_w > cap_w:
        return (
            f"the power cap is {cap_w:g} W: the plan draws {room.power_w:.0f} W, and the job would "
            f"add at least {least_w:.0f} W"
        )
    penalty = job.priority * problem.waiting_penalty_w
    return f"running it would cost more than leaving it waiting (its penalty is {penalty:g})"


def _no_room(c: Compiled, room: _Room, types: npt.NDArray[Any], gpus: npt.NDArray[Any]) -> str:
    """No server has the GPUs: they are taken, or free on different servers."""
    wanted = sorted(set(types.tolist()))
    names = " or ".join(c.table.types[t] for t in wanted)
    if not any(room.total[t] for t in wanted):
        takers = [i for t in wanted for i in room.on_type.get(t, ())]
        said = _names(c.problem, takers)
        return f"every GPU it could use ({names}) is taken by jobs that are worth more{said}"
    least = int(gpus.min())
    said = f"no server has room for it: it needs {least} GPUs of {names} on one server"
    if c.problem.max_moves is not None and room.moves >= c.problem.max_moves:
        said += f", and the limit of {c.problem.max_moves} moves is used up"
    return said


def _exists(c: Compiled, rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.isin(c.table.type_id[rows], list({kind.gpu_type for kind in c.kinds}))


def _names(problem: Problem, jobs: list[int]) -> str:
    """The first of these jobs, and how many more; pinned ones are not there for what they are."""
    ids = [problem.jobs[i].id for i in dict.fromkeys(jobs) if not problem.jobs[i].pinned]
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f": {', '.join(ids[:_NAMED])}{more}" if ids else ""
