"""Why a job waits, in one sentence that its owner understands."""

from __future__ import annotations

import numpy as np

from gogh_core.allocation.compiled import Compiled, Seats, need_of

__all__ = ["waiting_reason"]


def waiting_reason(compiled: Compiled, seats: Seats, j: int) -> str:
    """The first thing that keeps the job from running."""
    c = compiled
    job = c.problem.jobs[j]
    here = c.sides(int(c.cls[j]))
    rows, got = c.side_row[here], c.side_got[here]
    types = {kind.gpu_type for kind in c.kinds}
    exists = np.isin(c.table.type_id[rows], list(types))
    if not exists.any():
        return "no server in use has a GPU type it has an option for"
    if job.mode == "spread":
        best = float(got[exists & ~c.pair[rows]].max(initial=0.0)) * job.max_gpus
        if best < need_of(job.required_throughput):
            return (
                f"needs {job.required_throughput:g}; the most {job.max_gpus} GPUs can give "
                f"is {best:g}"
            )
    else:
        fits = np.isin(c.table.gpus[rows], job.gpu_counts)
        if not (exists & fits).any():
            return f"no option for {' or '.join(map(str, job.gpu_counts))} GPUs"
        group = c.groups[c.group_of[j]]
        if not (group.usable & exists).any():
            index = np.flatnonzero(exists & fits)
            best_index = int(index[np.argmax(got[index])])
            name = c.table.types[c.table.type_id[rows[best_index]]]
            return (
                f"needs {job.required_throughput:g}; the best option is "
                f"{got[best_index]:g} on {name}"
            )
    if job.at and not c.free[j]:
        return "it cannot move and its place is not kept"
    owner = int(c.owner[j])
    if owner >= 0:
        used = sum(
            len(seat.gpus)
            for i, entries in seats.items()
            if c.owner[i] == owner
            for seat in entries
        )
        if used + 1 > c.problem.quotas[job.owner]:
            return f"the quota of {job.owner!r} ({c.problem.quotas[job.owner]} GPUs) is used up"
    free = _free_gpus(c, seats)
    if free == 0:
        return "every GPU it could use is taken by jobs that are worth more"
    return (
        "running it would cost more than its waiting penalty of "
        f"{job.priority * c.problem.waiting_penalty_w:g} W, or break a limit"
    )


def _free_gpus(c: Compiled, seats: Seats) -> int:
    taken = {gpu for entries in seats.values() for seat in entries for gpu in seat.gpus}
    return sum(kind.size * len(kind.servers) for kind in c.kinds) - len(taken)
