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
from gogh_core.allocation.prices import Prices
from gogh_core.allocation.pricing import Pricer
from gogh_core.allocation.sides import loose_sides

__all__ = [
    "add_bundles",
    "first_bundles",
    "own_prices",
    "raise_offers",
    "side_prices",
    "tie_prices",
    "worths",
]

Floats = npt.NDArray[np.float64]
INF = np.inf
_LABELS = 600
_PER_ROUND = 3
_SINGLES = 12


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
    """[row, price of its first side, of its second, realm] as far as the program has rows."""
    rows = sorted({(row, realm) for row, _, realm in prices.slots if not c.own[row]})
    found: list[list[Any]] = []
    for row, realm in rows:
        two = [prices.slots.get((row, side, realm)) for side in (0, 1)]
        found.append([row, *(None if dual is None else -dual for dual in two), realm])
    return found


def own_prices(pricer: Pricer, prices: Prices) -> list[list[Any]]:
    """[row, realm, price of a side, [job, what it pays on top], …] of classes with themselves.

    Where only gangs could come what they offer says more.
    """
    c = pricer.c
    found: list[list[Any]] = []
    for (row, side, realm), dual in sorted(prices.slots.items()):
        if c.own[row] and loose_sides(pricer, realm)[pricer.pos[side][row]]:
            more = [
                [int(c.groups[group].first), price]
                for (mine, where, group), price in sorted(prices.selves.items())
                if (mine, where) == (row, realm)
            ]
            found.append([row, realm, -dual, more])
    return found


def tie_prices(prices: Prices) -> list[list[Any]]:
    """[server, GPU, row, price of its first side, of its second] where two go on sharing."""
    keys = sorted({key[:3] for key in prices.ties})
    return [[*key, *(-prices.ties.get((*key, side), 0.0) for side in (0, 1))] for key in keys]


def raise_offers(
    pricer: Pricer,
    prices: Prices,
    option: Floats,
    tops: tuple[Floats, Any, Floats],
    realm: int,
) -> None:
    """Best and second best offers for sides, raised by what spread jobs would pay for them.

    What they would pay is estimated from above; where the other side has a price, no more than that
    leaves of the option counts.
    """
    c = pricer.c
    top, who, second = tops
    worth = worths(pricer, prices)
    most = np.full(len(top), INF)
    for (row, side, where), dual in prices.slots.items():
        if where == realm:
            most[pricer.other_side[pricer.pos[side][row]]] = option[row] + dual
    for group in pricer.spread:
        j = group.first
        if realm not in c.job_realms[j] or not c.free[j]:
            continue
        here = c.sides(group.cls)
        got = np.minimum(c.side_got[here], max(float(c.required[j]), 1e-9))
        bid = np.where(group.usable, worth[j] * got + c.surplus[j] * c.side_got[here], -INF)
        if c.owner[j] >= 0:
            bid = bid - prices.quotas[c.owner[j]]
        bid = np.minimum(bid - _way_prices(pricer, prices, group), most[here])
        better = bid > top[here]
        beaten = np.where(better, top[here], bid)
        second[here] = np.maximum(second[here], beaten if group.count == 1 else bid)
        top[here] = np.where(better, bid, top[here])
        who[here] = np.where(better, group.index, who[here])


def _way_prices(pricer: Pricer, prices: Prices, group: Group) -> Floats:
    """What the ways that are branched on add to each side of the group's class."""
    here = pricer.c.sides(group.cls)
    result: Floats = np.zeros(here.stop - here.start)
    for (mine, way), price in prices.ways.items():
        if mine == group.index and price:
            result = result + pricer.way_prices(way, price, here)
    return result


def add_bundles(pricer: Pricer, prices: Prices) -> int:
    """Bundles that are worth adding for each spread group; the count of new columns."""
    c = pricer.c
    place_cost, places = pricer.place_prices(prices)
    option = pricer.option_prices(prices, place_cost)
    bids = [pricer.offers(block, prices) for block in pricer.blocks]
    tops, guesses = [], []
    for realm in range(len(c.realms)):
        offers = pricer._tops(bids, realm)
        raise_offers(pricer, prices, option, offers, realm)
        top = offers[0]
        tops.append(offers[:2])
        guesses.append(_guessed(pricer, option, top, realm))
    priced = np.zeros((len(c.realms), len(c.own)), dtype=bool)
    for (row, side, realm), dual in prices.slots.items():
        guesses[realm][pricer.pos[side][row]] = -dual
        priced[realm, row] |= side == 0
    added = _pairs(pricer, prices, option, places) + _sides(pricer, prices, bids)
    for group in pricer.spread:
        if c.free[group.first]:
            price = _asked(pricer, prices, group, option, guesses, tops, priced)
            new, least = _covered(pricer, prices, group, price, places, tops)
            added += new
            pricer.worst += least * group.count
        if c.running[group.first] and c.stay_of(group.first) is not None:
            added += add_keeps(pricer, prices, group, tops)
    return added


def _pairs(pricer: Pricer, prices: Prices, option: Floats, places: list[Any]) -> int:
    """Shared options whose two sides together pay more than the option costs somewhere."""
    c, added = pricer.c, 0
    selves: dict[tuple[int, int], float] = {}
    for (row, realm, _), price in prices.selves.items():
        selves[row, realm] = selves.get((row, realm), 0.0) + price
    for row, realm in sorted({(row, realm) for row, _, realm in prices.slots}):
        sides = (0, 0) if c.own[row] else (0, 1)
        paid = -sum(prices.slots.get((row, side, realm), 0.0) for side in sides)
        paid += selves.get((row, realm), 0.0)
        place = places[pricer.place_of[row]]
        if place is not None and paid > option[row] + 1e-7:
            added += pricer.master.pair(row, realm, place)
            pricer.worst -= paid - float(option[row])  # at least one such pair
    return added


def _sides(pricer: Pricer, prices: Prices, bids: list[Floats]) -> int:
    """Gangs that would pay more for a side than its row asks."""
    c, added = pricer.c, 0
    for (row, side, realm), dual in sorted(prices.slots.items()):
        at = int(pricer.pos[side][row])
        block_at = pricer.block_of.get(
            int(c.table.class_a[row] if side == 0 else c.table.class_b[row])
        )
        if block_at is None:
            continue
        block = pricer.blocks[block_at]
        paid = bids[block_at][:, at - block.sides.start]
        for g in np.flatnonzero((paid > -dual + 1e-7) & block.realm[realm]).tolist():
            added += pricer.master.side(block.groups[g], row, side, realm)
    return added


def _guessed(pricer: Pricer, option: Floats, top: Floats, realm: int) -> Floats:
    """What each side of a pair without rows of its own will be asked: the verifier's rule."""
    c = pricer.c
    loose = loose_sides(pricer, realm)
    cost, other = option[c.side_row], pricer.other_side
    mine, theirs = top, top[other]
    with np.errstate(invalid="ignore", divide="ignore"):
        both = pricer.side_pair & np.isfinite(mine) & np.isfinite(theirs) & np.isfinite(cost)
        spare = np.where(both, cost - mine - theirs, 0.0)
        tight = both & (spare < 0) & (mine > 0) & (theirs > 0) & (cost > 0)
        guess = np.where(tight, mine * cost / (mine + theirs), mine + spare / 2)
        guess = np.where(loose & ~loose[other], cost - theirs, guess)
        if c.running.any():
            guess = np.where(spare >= 0, mine, guess)
    guess = np.where(c.own[c.side_row], cost / 2, guess)
    return np.where(both, guess, INF)


def _asked(
    pricer: Pricer,
    prices: Prices,
    group: Group,
    option: Floats,
    asked: list[Floats],
    tops: list[tuple[Floats, Any]],
    priced: npt.NDArray[np.bool_],
) -> Floats:
    """[usable sides, alone and realms]: what a slot costs the group."""
    c, j = pricer.c, group.first
    index = np.flatnonzero(group.usable) + c.sides(group.cls).start
    rows = c.side_row[index]
    alone = ~pricer.side_pair[index]
    price = np.full((len(index), 1 + len(c.realms)), INF)
    price[alone, 0] = option[rows[alone]]
    for realm in c.job_realms[j]:
        price[~alone, 1 + realm] = asked[realm][index[~alone]]
        # Beside somebody of its class who offers more it is asked only what is left.
        top, who = tops[realm]
        other = (
            c.own[rows]
            & ~priced[realm][rows]
            & (who[index] != group.index)
            & np.isfinite(top[index])
        )
        left = option[rows[other]] - top[index[other]]
        price[other, 1 + realm] = np.minimum(price[other, 1 + realm], left)
    for (row, realm, mine), more in prices.selves.items():
        if mine == group.index:
            price[rows == row, 1 + realm] += more
    return price


def _covered(
    pricer: Pricer,
    prices: Prices,
    group: Group,
    price: Floats,
    places: list[Any],
    tops: list[tuple[Floats, Any]],
) -> tuple[int, float]:
    """Bundles at these prices: how many are new, and the least reduced cost."""
    c, j = pricer.c, group.first
    index = np.flatnonzero(group.usable) + c.sides(group.cls).start
    if not len(index):
        return 0, 0.0
    rows = c.side_row[index]
    best = price.argmin(axis=1)
    cost = price[np.arange(len(index)), best] - c.surplus[j] * c.side_got[index]
    if c.owner[j] >= 0:
        cost = cost + prices.quotas[c.owner[j]]
    cost = cost + _way_prices(pricer, prices, group)[index - c.sides(group.cls).start]
    fixed = float(c.move_w[j]) + prices.moves * float(c.running[j])
    fixed += float(c.surplus[j] * c.required[j]) - float(prices.groups[group.index])
    gpus = sum(kind.size * len(kind.servers) for kind in c.kinds)
    most = min(c.problem.jobs[j].max_gpus, gpus)
    found = cover(c.side_got[index], cost, float(c.required[j]), most)
    added, least = 0, 0.0
    for total, chosen in (*found[:_PER_ROUND], *_single(c, j, index, cost)):
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


def _single(
    c: Compiled, j: int, index: npt.NDArray[np.int64], cost: Floats
) -> list[tuple[float, tuple[int, ...]]]:
    """The cheapest slots that are enough by themselves, best first.

    Many cost the same, and one of them a round would raise the prices of all of them slowly.
    """
    enough = np.flatnonzero((c.side_got[index] >= need_of(c.required[j])) & np.isfinite(cost))
    best = enough[np.argsort(cost[enough], kind="stable")[:_SINGLES]]
    return [(float(cost[at]), (int(at),)) for at in best]


def cover(
    got: Floats, cost: Floats, required: float, most: int
) -> list[tuple[float, tuple[int, ...]]]:
    """The cheapest ways to reach the requirement with each number of slots, best first."""
    finite = np.flatnonzero(np.isfinite(cost))
    if not len(finite):
        return []
    capped = np.minimum(got[finite], required)
    items = finite[_front(capped, cost[finite])]
    mine, price = np.minimum(got[items], required), cost[items]
    reach, paid = np.zeros(1), np.zeros(1)
    limit, rate = _alike(mine, price, required, most)
    steps: list[tuple[Any, Any]] = []
    done: list[tuple[float, tuple[int, ...]]] = []
    for _ in range(most):
        total = np.minimum((reach[:, None] + mine[None, :]).ravel(), required)
        spent = (paid[:, None] + price[None, :]).ravel()
        good = np.flatnonzero(spent + rate * (required - total) <= limit)
        keep = good[_front(total[good], spent[good])]
        if not len(keep):
            break
        if len(keep) > _LABELS:  # both ends matter: much throughput, and little money
            keep = keep[np.linspace(0, len(keep) - 1, _LABELS).astype(np.int64)]
        steps.append((keep // len(items), keep % len(items)))
        reach, paid = total[keep], spent[keep]
        enough = np.flatnonzero(reach >= need_of(required))
        if len(enough):
            at = int(enough[np.argmin(paid[enough])])
            chosen, label = [], at
            for parents, picked in reversed(steps):
                chosen.append(int(items[picked[label]]))
                label = int(parents[label])
            done.append((float(paid[at]), tuple(sorted(chosen))))
            if len(enough) == len(reach) and price.min() >= 0:
                break  # Every label is enough: more slots only cost more.
    done.sort()
    return done


def _alike(mine: Floats, price: Floats, required: float, most: int) -> tuple[float, float]:
    """(the most that is worth paying, the least that one unit of throughput costs).

    Slots that are all alike show what is enough; what costs a quarter more, even if the rest came
    at the best rate there is, is not looked at.
    """
    if price.min() < 0 or required <= 0:
        return INF, 0.0
    able = mine > 0
    if not able.any():
        return INF, 0.0
    mine, price = mine[able], price[able]
    number = np.maximum(1.0, np.ceil(need_of(required) / mine))
    best = float(np.where(number <= most, number * price, INF).min())
    return 1.25 * best, float((price / mine).min())


def _front(reach: Floats, paid: Floats) -> npt.NDArray[np.int64]:
    """The labels that are not worse in both, the most throughput first."""
    order = np.lexsort((paid, -reach))
    lowest = np.minimum.accumulate(paid[order])
    keep = np.ones(len(order), dtype=bool)
    keep[1:] = paid[order][1:] < lowest[:-1] - 1e-12
    return order[keep]


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
