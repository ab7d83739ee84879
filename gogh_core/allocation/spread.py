"""Spread jobs: one column is a bundle of one-GPU slots that together reach the requirement.

A bundle is priced by a small knapsack: labels (throughput so far, price so far), kept only while
nothing is better in both. Slots alone cost the option and a GPU; sides of a pair cost what their
row says, or what the best partner leaves over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.compiled import Compiled, Group, need_of
from gogh_core.allocation.keeps import add_keeps, first_keeps, tied
from gogh_core.allocation.pricing import Pricer, Prices

__all__ = [
    "add_bundles",
    "first_bundles",
    "raise_offers",
    "side_prices",
    "tie_prices",
    "worths",
]

Floats = npt.NDArray[np.float64]
INF = np.inf
_LABELS = 400
_ITEMS = 60
_PER_ROUND = 3


def worths(pricer: Pricer, prices: Prices) -> Floats:
    """What one unit of throughput is worth to each job at these prices (0 for gangs)."""
    c = pricer.c
    result = np.zeros(len(c.cls))
    for group in pricer.spread:
        j = group.first
        value = prices.groups[group.index] - c.move_w[j] * c.running[j]
        result[group.jobs] = max(0.0, value) / max(float(c.required[j]), 1e-9)
    return result


def side_prices(c: Compiled, prices: Prices) -> list[list[Any]]:
    """[row, price of its first side, of its second] as far as the program has rows for them."""
    rows = sorted({row for row, _, realm in prices.slots if realm == 0 and not c.own[row]})
    found: list[list[Any]] = []
    for row in rows:
        two = [prices.slots.get((row, side, 0)) for side in (0, 1)]
        found.append([row, *(None if dual is None else -dual for dual in two)])
    return found


def tie_prices(prices: Prices) -> list[list[Any]]:
    """[server, GPU, row, price of its first side, of its second] where two go on sharing."""
    keys = sorted({key[:3] for key in prices.ties})
    return [[*key, *(-prices.ties.get((*key, side), 0.0) for side in (0, 1))] for key in keys]


def raise_offers(
    pricer: Pricer, prices: Prices, option: Floats, top: Floats, who: Any, realm: int
) -> None:
    """Best offers for sides, raised by what spread jobs would pay for them."""
    c = pricer.c
    worth = worths(pricer, prices)
    del option
    for group in pricer.spread:
        j = group.first
        if realm not in c.job_realms[j] or not c.free[j]:
            continue
        here = c.sides(group.cls)
        got = np.minimum(c.side_got[here], max(float(c.required[j]), 1e-9))
        bid = np.where(group.usable, worth[j] * got + c.surplus[j] * c.side_got[here], -INF)
        if c.owner[j] >= 0:
            bid = bid - prices.quotas[c.owner[j]]
        better = bid > top[here]
        top[here] = np.where(better, bid, top[here])
        who[here] = np.where(better, group.index, who[here])


def add_bundles(pricer: Pricer, prices: Prices) -> int:
    """Bundles that are worth adding for each spread group; the count of new columns."""
    c = pricer.c
    place_cost, places = pricer.place_prices(prices)
    option = pricer.option_prices(prices, place_cost)
    bids = [pricer.offers(block, prices) for block in pricer.blocks]
    tops = []
    for realm in range(len(c.realms)):
        top, who, _ = pricer._tops(bids, realm)
        raise_offers(pricer, prices, option, top, who, realm)
        tops.append((top, who))
    added = 0
    for group in pricer.spread:
        if c.free[group.first]:
            added += _bundles(pricer, prices, group, option, places, tops)
        if c.running[group.first] and c.stay_of(group.first) is not None:
            added += add_keeps(pricer, prices, group, tops)
    return added


def _bundles(
    pricer: Pricer,
    prices: Prices,
    group: Group,
    option: Floats,
    places: list[Any],
    tops: list[tuple[Floats, Any]],
) -> int:
    c, j = pricer.c, group.first
    here = c.sides(group.cls)
    index = np.flatnonzero(group.usable) + here.start
    rows = c.side_row[index]
    alone = ~pricer.side_pair[index]
    hoped = np.full((len(index), 1 + len(c.realms)), INF)
    hoped[alone, 0] = option[rows[alone]]
    asked = hoped.copy()
    for realm in c.job_realms[j]:
        top, who = tops[realm]
        other = pricer.other_side[index]
        mate = who[other]
        ask = np.where((mate >= 0) & (mate != group.index), option[rows] - top[other], INF)
        hoped[~alone, 1 + realm] = ask[~alone]
        for at in np.flatnonzero(~alone).tolist():
            side = 0 if c.own[rows[at]] else int(c.side_no[index[at]])
            dual = prices.slots.get((int(rows[at]), side, realm))
            if dual is not None:
                asked[at, 1 + realm] = -dual
    added, least = 0, 0.0
    # What rows ask for sides that exist, then what partners would leave over for new ones.
    for price in (asked, np.minimum(asked, hoped)):
        new, rc = _covered(pricer, prices, group, index, price, places, tops)
        added += new
        least = min(least, rc)
    pricer.worst += least * group.count
    return added


def _covered(
    pricer: Pricer,
    prices: Prices,
    group: Group,
    index: Any,
    price: Floats,
    places: list[Any],
    tops: list[tuple[Floats, Any]],
) -> tuple[int, float]:
    """Bundles at these prices: how many are new, and the least reduced cost."""
    c, j = pricer.c, group.first
    rows = c.side_row[index]
    best = price.argmin(axis=1)
    cost = price[np.arange(len(index)), best] - c.surplus[j] * c.side_got[index]
    if c.owner[j] >= 0:
        cost = cost + prices.quotas[c.owner[j]]
    fixed = float(c.move_w[j]) + prices.moves * float(c.running[j])
    fixed += float(c.surplus[j] * c.required[j]) - float(prices.groups[group.index])
    found = cover(c.side_got[index], cost, float(c.required[j]), c.problem.jobs[j].max_gpus)
    added, least = 0, 0.0
    for total, chosen in found[:_PER_ROUND]:
        rc = total + fixed
        least = min(least, rc)
        if rc >= -1e-7:
            break
        items = []
        for at in chosen:
            row, realm = int(rows[at]), int(best[at]) - 1
            side = int(c.side_no[index[at]])
            place = places[pricer.place_of[row]]
            if place is None:
                break
            items.append((row, side, place[0] if realm < 0 else -1, realm))
            if realm >= 0:
                added += pricer.master.pair(row, realm, place)
                mate = int(tops[realm][1][pricer.other_side[index[at]]])
                if mate >= 0 and not c.spread[c.groups[mate].first]:
                    added += pricer.master.side(c.groups[mate], row, 1 - side, realm)
        else:
            added += pricer.master.bundle(group, tuple(sorted(items)))
    return added, least


def cover(
    got: Floats, cost: Floats, required: float, most: int
) -> list[tuple[float, tuple[int, ...]]]:
    """The cheapest ways to reach the requirement with one to `most` slots, best first."""
    finite = np.flatnonzero(np.isfinite(cost))
    if not len(finite):
        return []
    order = finite[np.lexsort((cost[finite], -got[finite]))]
    items: list[int] = []
    lowest = INF
    for at in order:
        if cost[at] < lowest - 1e-12:
            items.append(int(at))
            lowest = cost[at]
    items = items[-_ITEMS:] if len(items) > _ITEMS else items
    labels: list[tuple[float, float, tuple[int, ...]]] = [(0.0, 0.0, ())]
    done: list[tuple[float, tuple[int, ...]]] = []
    for _ in range(most):
        step = []
        for reach, paid, chosen in labels:
            for at in items:
                if chosen and at < chosen[-1]:
                    continue
                total = min(reach + float(got[at]), required)
                entry = (total, paid + float(cost[at]), (*chosen, at))
                if total >= need_of(required):
                    done.append((entry[1], entry[2]))
                step.append(entry)
        step.sort(key=lambda entry: (-entry[0], entry[1], entry[2]))
        labels, lowest = [], INF
        for entry in step:
            if entry[1] < lowest - 1e-12:
                labels.append(entry)
                lowest = entry[1]
        labels = labels[:_LABELS]
    done.sort()
    return done


def first_bundles(pricer: Pricer) -> None:
    """Where spread jobs are: alone on each GPU, or going on with who shares it now."""
    c = pricer.c
    for group in pricer.spread:
        j = group.first
        if c.running[j] and c.stay_of(j) is not None:
            first_keeps(pricer, c, group)
    for stay in pricer.stays:
        j = stay.group.first
        place = c.problem.jobs[j].place
        if len(place) != 1:
            continue
        ((server, gpu),) = place
        for side in stay.shared:
            row, no = int(c.side_row[side]), int(c.side_no[side])
            if tied(pricer, c, j, server, gpu, row, no):
                pricer.master.keep(stay.group, ((row, no, server, gpu, -2),))
                pricer.master.tie(row, server, gpu)
