"""Pricing of gangs that stay where they are: alone, as hosts of somebody who comes, or together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.compiled import Group
from gogh_core.allocation.prices import Prices

if TYPE_CHECKING:
    from gogh_core.allocation.pricing import Pricer

__all__ = ["Stay", "add_hosts", "add_stays", "both_columns", "stay_of_group"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Stay:
    """Sides a running gang could fill where it is."""

    group: Group
    alone: Ints
    shared: Ints


def stay_of_group(pricer: Pricer, group: Group) -> Stay | None:
    """Where a running gang could stay, or None."""
    c, j = pricer.c, group.first
    place = c.stay_of(j) if c.running[j] and not c.spread[j] else None
    if place is None:
        return None
    here = c.sides(group.cls)
    rows = c.side_row[here]
    fit = group.usable & (c.table.type_id[rows] == place[0]) & (c.table.gpus[rows] == place[1])
    index = np.flatnonzero(fit) + here.start
    shared = pricer.side_pair[index]
    return Stay(group, index[~shared], index[shared])


def _loc(pricer: Pricer, prices: Prices, j: int) -> float:
    """What the GPUs where a job is cost it."""
    c = pricer.c
    place = c.problem.jobs[j].place
    servers = sorted({server for server, _ in place})
    kind = c.kinds[c.kind_of[servers[0]]]
    if len(place) > c.largest[kind.gpu_type]:
        power = 1 + prices.power
        whole = sum(
            power * c.kinds[c.kind_of[s]].power_w
            + c.kinds[c.kind_of[s]].other_w
            + prices.servers[c.kind_of[s]]
            for s in servers
        )
        return float(whole)
    return float(len(place) * prices.gpus[kind.index] + sum(prices.cells[x] for x in c.cells_of[j]))


def _stay_value(pricer: Pricer, prices: Prices, group: Group, sides: Ints) -> Floats:
    c, j = pricer.c, group.first
    value = prices.groups[group.index] - c.surplus[j] * c.required[j]
    value -= prices.ways.get((group.index, ("stay",)), 0.0)
    value = value + c.surplus[j] * c.side_got[sides]
    if c.owner[j] >= 0:
        value = value - prices.quotas[c.owner[j]] * pricer.side_gpus[sides]
    return np.asarray(value, dtype=float)


def add_stays(pricer: Pricer, prices: Prices, watts: Floats, eps: float, best_rc: Floats) -> int:
    """Gangs alone where they are, the best option for each; the count of new columns."""
    c, added = pricer.c, 0
    for stay in pricer.stays:
        if not len(stay.alone):
            continue
        rows = c.side_row[stay.alone]
        value = _stay_value(pricer, prices, stay.group, stay.alone)
        rc = watts[rows] + _loc(pricer, prices, stay.group.first) - value
        best = int(np.argmin(rc))
        best_rc[stay.group.index] = min(best_rc[stay.group.index], float(rc[best]))
        if rc[best] < -eps:
            added += pricer.master.stay(stay.group, int(rows[best]))
    return added


def add_hosts(
    pricer: Pricer,
    prices: Prices,
    watts: Floats,
    take: Floats,
    who: Ints,
    second: Floats,
    realm: int,
    eps: float,
    best_rc: Floats,
) -> int:
    """Gangs where they are with somebody who comes; the count of new columns."""
    c, added = pricer.c, 0
    for stay in pricer.stays:
        j = stay.group.first
        if realm not in c.job_realms[j] or not len(stay.shared):
            continue
        rows = c.side_row[stay.shared]
        value = _stay_value(pricer, prices, stay.group, stay.shared)
        other = pricer.other_side[stay.shared]
        # In a class with itself the best offer may be the host's own: then the next one.
        itself = who[other] == stay.group.index
        offer = np.where(itself, second[other], take[other])
        rc = watts[rows] + _loc(pricer, prices, j) - value - offer
        best = int(np.argmin(rc))
        if rc[best] >= -eps:
            continue
        side, row = int(stay.shared[best]), int(rows[best])
        mate = int(who[pricer.other_side[side]])
        if mate == stay.group.index:
            block = pricer.blocks[pricer.block_of[stay.group.cls]]
            mate = pricer.other_mate(block, row, stay.group, realm)
        best_rc[stay.group.index] = min(best_rc[stay.group.index], float(rc[best]) / 2)
        added += pricer.master.host(stay.group, row, int(c.side_no[side]), realm)
        if mate >= 0 and not c.spread[c.groups[mate].first]:
            added += pricer.master.side(c.groups[mate], row, 1 - int(c.side_no[side]), realm)
    return added


def both_columns(pricer: Pricer) -> None:
    """Two gangs that share now and may go on sharing."""
    c = pricer.c
    by_place: dict[Any, list[Stay]] = {}
    for stay in pricer.stays:
        by_place.setdefault(c.problem.jobs[stay.group.first].place, []).append(stay)
    for stays in by_place.values():
        if len(stays) != 2:
            continue
        i, j = stays[0].group.first, stays[1].group.first
        if not c.consent(i, j):
            continue
        theirs = set(stays[1].shared.tolist())
        for side in stays[0].shared:
            other = int(pricer.other_side[side])
            if other in theirs:
                no = int(c.side_no[side])
                pricer.master.both(i, j, int(c.side_row[side]), (no, int(c.side_no[other])))
