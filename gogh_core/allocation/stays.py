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

__all__ = ["Stay", "Stays", "add_hosts", "add_stays", "both_columns", "stay_of_group"]

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


class Stays:
    """Every way to stay of all running gangs side by side, so that a round prices them at once."""

    def __init__(self, pricer: Pricer, stays: list[Stay]) -> None:
        c = pricer.c
        first = [stay.group.first for stay in stays]
        self.stays = stays
        self.group = np.array([stay.group.index for stay in stays], dtype=np.int64)
        self.surplus, self.owner = c.surplus[first], c.owner[first]
        self.once = c.surplus[first] * c.required[first]
        places = [c.problem.jobs[j].place for j in first]
        servers = [sorted({server for server, _ in place}) for place in places]
        self.kind = np.array([c.kind_of[names[0]] for names in servers], dtype=np.int64)
        self.gpus = np.array([len(place) for place in places], dtype=np.float64)
        self.whole = {
            at: [c.kinds[c.kind_of[name]] for name in names]
            for at, names in enumerate(servers)
            if len(places[at]) > c.largest[c.kinds[self.kind[at]].gpu_type]
        }
        small = [at for at in range(len(stays)) if at not in self.whole]
        cells = [(at, cell) for at in small for cell in c.cells_of[first[at]]]
        self.cells = np.array(cells, dtype=np.int64).reshape(-1, 2)
        self.realm = np.array(
            [[r in c.job_realms[j] for j in first] for r in range(len(c.realms))], dtype=bool
        ).reshape(len(c.realms), len(stays))
        self.alone = _Flat(pricer, [stay.alone for stay in stays])
        self.shared = _Flat(pricer, [stay.shared for stay in stays])

    def places(self, prices: Prices) -> Floats:
        """What the GPUs where each job is cost it."""
        cost: Floats = self.gpus * prices.gpus[self.kind]
        np.add.at(cost, self.cells[:, 0], prices.cells[self.cells[:, 1]])
        for at, kinds in self.whole.items():
            cost[at] = sum(
                (1 + prices.power) * kind.power_w + kind.other_w + prices.servers[kind.index]
                for kind in kinds
            )
        return cost

    def reduced(self, pricer: Pricer, prices: Prices, watts: Floats, flat: _Flat) -> Floats:
        """The reduced cost of every entry, before anybody who comes pays for his side."""
        value = prices.groups[self.group] - self.once
        for (group, way), price in prices.ways.items():
            if way == ("stay",):
                value = value - price * (self.group == group)
        rc: Floats = watts[flat.rows] + (self.places(prices) - value)[flat.of]
        rc -= self.surplus[flat.of] * pricer.c.side_got[flat.sides]
        if len(prices.quotas):
            owner = self.owner[flat.of]
            quota = np.where(owner >= 0, prices.quotas[owner], 0.0)
            rc += quota * pricer.side_gpus[flat.sides]
        return rc


class _Flat:
    """Sides of many stays in one array; `of` says whose they are."""

    def __init__(self, pricer: Pricer, sides: list[Ints]) -> None:
        self.sides = np.concatenate([np.zeros(0, dtype=np.int64), *sides])
        self.of = np.repeat(np.arange(len(sides)), [len(mine) for mine in sides])
        self.rows = pricer.c.side_row[self.sides]

    def best(self, rc: Floats) -> Ints:
        """The entry of the least reduced cost of each stay that has any."""
        order = np.lexsort((np.arange(len(rc)), rc, self.of))
        return order[np.unique(self.of[order], return_index=True)[1]]


def add_stays(pricer: Pricer, prices: Prices, watts: Floats, eps: float, best_rc: Floats) -> int:
    """Gangs alone where they are, the best option for each; the count of new columns."""
    all_stays, added = pricer.all_stays, 0
    flat = all_stays.alone
    rc = all_stays.reduced(pricer, prices, watts, flat)
    best = flat.best(rc)
    np.minimum.at(best_rc, all_stays.group[flat.of[best]], rc[best])
    for at in best[rc[best] < -eps]:
        stay = all_stays.stays[flat.of[at]]
        added += pricer.master.stay(stay.group, int(flat.rows[at]))
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
    c, all_stays, added = pricer.c, pricer.all_stays, 0
    flat = all_stays.shared
    other = pricer.other_side[flat.sides]
    # In a class with itself the best offer may be the host's own: then the next one.
    itself = who[other] == all_stays.group[flat.of]
    offer = np.where(itself, second[other], take[other])
    rc = all_stays.reduced(pricer, prices, watts, flat) - offer
    rc[~all_stays.realm[realm][flat.of]] = np.inf
    best = flat.best(rc)
    for at in best[rc[best] < -eps]:
        stay = all_stays.stays[flat.of[at]]
        side, row = int(flat.sides[at]), int(flat.rows[at])
        mate = int(who[other[at]])
        if mate == stay.group.index:
            block = pricer.blocks[pricer.block_of[stay.group.cls]]
            mate = pricer.other_mate(block, row, stay.group, realm)
        best_rc[stay.group.index] = min(best_rc[stay.group.index], float(rc[at]) / 2)
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
