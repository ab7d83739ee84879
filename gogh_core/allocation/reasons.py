"""Why a job waits, in one sentence that its owner understands."""

from __future__ import annotations

import numpy as np

from gogh_core.allocation.compiled import Compiled, Seats, need_of

__all__ = ["waiting_reasons"]


def waiting_reasons(compiled: Compiled, seats: Seats) -> dict[int, str]:
    """For every job without a seat the first thing that keeps it from running."""
    c = compiled
    free = [0] * len(c.table.types)
    for kind in c.kinds:
        free[kind.gpu_type] += kind.size * len(kind.servers)
    for entries in seats.values():
        for seat in entries:
            if seat.partner < seat.job:
                free[int(c.table.type_id[seat.row])] -= len(seat.gpus)
    held = [0] * len(c.owners)
    for i, entries in seats.items():
        if c.owner[i] >= 0:
            held[c.owner[i]] += sum(len(gpus) for seat in entries for _, gpus in seat.slots)
    # Jobs of a group wait for the same reason, so it is worked out once.
    known: dict[tuple[int, float, bool], str] = {}
    found = {}
    for j, job in enumerate(c.problem.jobs):
        if j not in seats:
            key = (int(c.group_of[j]), job.required_throughput, bool(c.free[j]))
            if key not in known:
                known[key] = _reason(c, j, free, held)
            found[j] = known[key]
    return found


def _reason(c: Compiled, j: int, free: list[int], held: list[int]) -> str:
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
            if got[best_index] >= need_of(job.required_throughput):
                return (
                    f"needs {int(c.table.gpus[rows[best_index]])} GPUs of one {name} server, "
                    "and on each of them are jobs that may not move now"
                )
            return (
                f"needs {job.required_throughput:g}; the best option is "
                f"{got[best_index]:g} on {name}"
            )
    if job.at and not c.free[j]:
        return "it cannot move and its place is not kept"
    owner = int(c.owner[j])
    if owner >= 0:
        used = held[owner]
        if used + 1 > c.problem.quotas[job.owner]:
            return f"the quota of {job.owner!r} ({c.problem.quotas[job.owner]} GPUs) is used up"
    usable = c.groups[c.group_of[j]].usable & exists
    wanted = sorted(set(c.table.type_id[rows[usable]].tolist()))
    if not any(free[t] for t in wanted):
        names = " or ".join(c.table.types[t] for t in wanted)
        return f"every GPU it could use ({names}) is taken by jobs that are worth more"
    return (
        "running it would cost more than its waiting penalty of "
        f"{job.priority * c.problem.waiting_penalty_w:g} W, or break a limit"
    )
