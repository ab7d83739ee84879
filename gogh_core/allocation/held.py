"""GPUs that jobs hold which may not move: what it costs to stop them for somebody else.

The program counts GPUs, not which ones: two free GPUs on two servers look like a place for a gang
of two, unless the GPUs beside them are known to be worth more to whoever holds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gogh_core.allocation.problem import Gpu

if TYPE_CHECKING:
    from gogh_core.allocation.compiled import Compiled

__all__ = ["stop_costs"]

_EXACT = 150
"""Up to so many jobs nothing is left out that the best plan might have."""


def stop_costs(c: Compiled) -> dict[tuple[int, int], float]:
    """(type, GPUs): what stopping who may not move costs for so many GPUs of one server.

    Who is pinned is never stopped. In a small problem others count only if they surely could stay
    instead: neither cap nor quota is in the way, and nobody else takes a part of their place.
    """
    held: dict[Gpu, float] = {}
    small = len(c.cls) <= _EXACT
    for j in np.flatnonzero(c.running & ~c.free).tolist():
        job, place = c.problem.jobs[j], c.problem.jobs[j].place
        limited = c.owner[j] >= 0 or c.problem.power_cap_w is not None
        if small and not job.pinned and (limited or len(place) > 1):
            continue
        lost_w = max(0.0, float(c.wait_w[j]) - _alone_w(c, j)) / len(place)
        if job.pinned:
            lost_w = np.inf
        for gpu in place:
            held[gpu] = held.get(gpu, 0.0) + lost_w
    least: dict[tuple[int, int], float] = {}
    for kind in c.kinds if held else ():
        for server in kind.servers:
            costs = sorted(held.get((server, gpu), 0.0) for gpu in range(kind.size))
            for m, cost in enumerate(np.cumsum(costs).tolist(), 1):
                key = (kind.gpu_type, m)
                least[key] = min(least.get(key, float("inf")), cost)
    return least


def _alone_w(c: Compiled, j: int) -> float:
    """Watts of a job alone where it is; inf if it cannot be."""
    stay = c.stay_of(j)
    if stay is None:
        return np.inf
    here = c.sides(int(c.cls[j]))
    rows = c.side_row[here]
    fit = ~c.pair[rows] & (c.table.type_id[rows] == stay[0])
    fit &= c.table.gpus[rows] == (1 if c.spread[j] else stay[1])
    slots = stay[1] if c.spread[j] else 1
    fit &= slots * c.side_got[here] >= c.required[j]
    return slots * float(c.net_w[rows[fit]].min(initial=np.inf))
