"""Ways: what a branch may count of one group's jobs, so that no plan is left undivided.

("wait",) waiting; ("stay",) where they are; ("type", t) on new GPUs of a type; ("side", row, side)
on one side of an option on new GPUs. A spread job counts once for each slot.

Waiting is also counted over crowds: all jobs (-1) and those of one priority (-2, -3, …). What the
LP lets wait in parts moves from one group to the next when only one of them is counted.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from gogh_core.allocation.compiled import Compiled

__all__ = ["ALL", "Way", "jobs_of", "ways_of"]

Way = tuple[Any, ...]
ALL = -1
"""The crowd of all jobs."""


def jobs_of(c: Compiled, who: int) -> list[int]:
    """The jobs of a group, or of a crowd."""
    if who >= 0:
        return c.groups[who].jobs
    if who == ALL:
        return list(range(len(c.cls)))
    level = c.priorities[ALL - 1 - who]
    return [j for j, job in enumerate(c.problem.jobs) if job.priority == level]


def ways_of(c: Compiled, what: tuple[Any, ...]) -> dict[tuple[int, Way], int]:
    """(group or crowd, way): how often, in the column that stands for `what`."""
    kind = what[0]
    if kind == "wait":
        level = c.priorities.index(c.problem.jobs[c.groups[what[1]].first].priority)
        return {(who, ("wait",)): 1 for who in (what[1], ALL, ALL - 1 - level)}
    if kind in ("stay", "host", "keep"):
        return {(int(c.group_of[what[1]]), ("stay",)): 1}
    if kind == "both":
        return {(int(c.group_of[j]), ("stay",)): 1 for j in what[1:3]}
    if kind in ("alone", "side"):
        side = 0 if kind == "alone" or c.own[what[2]] else what[3]
        t = int(c.table.type_id[what[2]])
        return {(what[1], ("type", t)): 1, (what[1], ("side", what[2], side)): 1}
    found: Counter[tuple[int, Way]] = Counter()
    if kind == "bundle":
        for row, side, _, _ in what[2]:
            found[what[1], ("type", int(c.table.type_id[row]))] += 1
            found[what[1], ("side", row, 0 if c.own[row] else side)] += 1
    return dict(found)
