"""What each of two that share pays: any split is sound that asks no more than the option costs.

Where the certificate names no prices of sides, they are split from what jobs offer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.verify_facts import INF, Array, Facts
from gogh_core.allocation.verify_prices import Prices, ways_price
from gogh_core.allocation.verify_stays import Stay

__all__ = ["Asks", "side_prices"]


def _offers(
    facts: Facts, prices: Prices, stays: dict[int, list[Stay]], watts: Array, realm: int
) -> tuple[list[Array], list[Array], Asks]:
    """For both sides of each option: the most anybody who comes would pay, and the most that may
    be asked so that those who stay on the other side can pay the rest.
    """
    table = facts.problem.table
    asks = Asks()
    most = [np.full(len(table), -INF), np.full(len(table), -INF)]
    least = [np.full(len(table), INF), np.full(len(table), INF)]
    once = facts.move_w + prices.moves * facts.running
    for group in facts.by_class:
        js, rows = group.jobs, group.rows
        member = facts.in_realm[realm][js]
        if not member.any():
            continue
        value = np.where(
            facts.by_rate[js], 0.0, prices.jobs[js] - facts.surplus[js] * facts.required[js]
        )
        bid: Any = value[:, None] - prices.quota_of[js][:, None] * table.gpus[rows][None, :]
        bid += facts.surplus[js][:, None] * group.throughput[None, :]
        counted = np.minimum(group.throughput[None, :], facts.required[js][:, None])
        bid += (prices.worth * facts.by_rate)[js][:, None] * counted
        bid[~group.usable | ~member[:, None]] = -INF
        comes = bid - np.where(facts.by_rate[js], 0.0, once[js])[:, None]
        comes -= ways_price(facts, prices, group)
        comes[~facts.free[js]] = -INF
        top = comes.max(axis=0, initial=-INF)
        for side in (0, 1):
            mine = group.side == side
            np.maximum.at(most[side], rows[mine], top[mine])
        itself: Any = np.flatnonzero(facts.own[rows])
        if len(itself):
            _first_and_second(asks, js, rows[itself], comes[:, itself])
        for position in np.flatnonzero(member):
            if facts.spread[js[position]]:
                continue
            for stay in stays.get(int(js[position]), ()):
                at = (table.type_id[rows] == stay.gpu_type) & (table.gpus[rows] == stay.gpus)
                at &= facts.pair[rows] & group.usable[position]
                if at.any():
                    room = watts[rows[at]] + stay.price - bid[position][at]
                    room += prices.stay[js[position]]
                    for row, left in zip(rows[at].tolist(), room.tolist(), strict=True):
                        if facts.own[row]:
                            asks.rooms.setdefault(row, {})[int(js[position])] = left
                    for side in (0, 1):
                        pick = group.side[at] == side
                        np.minimum.at(least[1 - side], rows[at][pick], room[pick])
    own = facts.own
    most[1][own] = most[0][own]
    least[0][own] = least[1][own] = np.minimum(least[0][own], least[1][own])
    return most, least, asks


@dataclass(slots=True)
class Asks:
    """For a class paired with itself: who offers the most, and the most anybody else offers."""

    first: dict[int, int] = field(default_factory=dict)
    second: dict[int, float] = field(default_factory=dict)
    price: dict[int, float] = field(default_factory=dict)
    """What the one who offers the most is asked instead."""
    rooms: dict[int, dict[int, float]] = field(default_factory=dict)
    """The most that may be asked of a comer so that a gang that stays can pay the rest."""
    each: dict[int, dict[int, float]] = field(default_factory=dict)
    """What certain jobs are asked instead, by the certificate."""


def _first_and_second(
    asks: Asks, js: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], comes: Array
) -> None:
    best = comes.argmax(axis=0)
    rest = comes.copy()
    rest[best, np.arange(comes.shape[1])] = -INF
    second = rest.max(axis=0, initial=-INF)
    for at, row in enumerate(rows):
        asks.first[int(row)] = int(js[best[at]])
        asks.second[int(row)] = float(second[at])


def side_prices(
    facts: Facts,
    prices: Prices,
    option: Array,
    watts: Array,
    stays: dict[int, list[Stay]],
    realm: int,
) -> tuple[Array, Array, Asks]:
    """A price for each side of every pair; together no more than the option costs.

    In a class paired with itself the job that offers the most may be asked more than half, the
    others less: any two of them still pay no more than the option costs.
    """
    most, least, asks = _offers(facts, prices, stays, watts, realm)
    (va, vb), (la, lb) = most, least
    stays_a, stays_b = np.isfinite(lb), np.isfinite(la)
    with np.errstate(invalid="ignore", divide="ignore"):
        both = np.isfinite(va) & np.isfinite(vb) & np.isfinite(option)
        spare = np.where(both, option - va - vb, 0.0)
        a = np.where(both, va + spare / 2, INF)
        b = np.where(both, vb + spare / 2, INF)
        if facts.spread.any():
            # Offers by throughput overshoot: then both sides pay less in proportion.
            tight = both & (spare < 0) & (va > 0) & (vb > 0) & (option > 0)
            a = np.where(tight, va * option / (va + vb), a)
            b = np.where(tight, vb * option / (va + vb), b)
        roomy = both & (spare > 0)
        if facts.spread.any():
            # Whoever offers a value pays it; what is left is for the one who offers by throughput.
            loose_a, loose_b = _loose(facts, realm)
            b = np.where(both & loose_a & ~loose_b, vb, b)
            a = np.where(both & loose_a & ~loose_b, option - vb, a)
            a = np.where(both & loose_b & ~loose_a, va, a)
            b = np.where(both & loose_b & ~loose_a, option - va, b)
            roomy &= loose_a == loose_b
            if stays:
                # Who stays takes what the other side is not asked: nobody pays beyond an offer.
                a = np.where(both & (spare >= 0), va, a)
                b = np.where(both & (spare >= 0), vb, b)
                la, lb = np.minimum(la, va), np.minimum(lb, vb)
        a = np.where(roomy, np.minimum(a, np.maximum(la, va)), a)
        b = np.where(roomy, np.minimum(option - a, np.maximum(lb, vb)), b)
        a = np.where(roomy, np.minimum(option - b, np.maximum(la, va)), a)
        for row, (first, second) in prices.sides.get(realm, {}).items():
            if not 0 <= row < len(a) or facts.own[row]:
                continue
            if both[row] and first is not None and second is not None:
                rest = min(0.0, option[row] - first - second)
                a[row], b[row] = first + rest / 2, second + rest / 2
        only_b = ~both & np.isfinite(vb)
        only_a = ~both & np.isfinite(va)
        host_a, host_b = _hosts(facts, stays, realm)
        b = np.where(only_b & host_a, vb, b)
        a = np.where(only_a & host_b, va, a)
        b = np.where(only_b & stays_a, (vb + lb) / 2, b)
        a = np.where(only_a & stays_b, (va + la) / 2, a)
        for row, (first, second) in prices.sides.get(realm, {}).items():
            if not 0 <= row < len(a) or facts.own[row]:
                continue
            # Nobody comes to the other side: whoever stays there takes what this side is asked.
            if only_b[row] and (host_a[row] or stays_a[row]) and second is not None:
                b[row] = second
            if only_a[row] and (host_b[row] or stays_b[row]) and first is not None:
                a[row] = first
    own = facts.own & both
    half = np.minimum(option / 2, np.where(roomy, np.maximum(la, va), INF))
    a = np.where(own, half, a)
    b = np.where(own, half, b)
    for row in np.flatnonzero(own).tolist():
        second = asks.second[int(row)]
        if np.isfinite(second) and facts.by_rate[asks.first[int(row)]]:
            continue  # An offer by throughput is no value: both pay half.
        if second < a[row]:
            if np.isfinite(second):
                a[row] = b[row] = second
                asks.price[int(row)] = float(min(option[row] - second, va[row]))
            else:
                mine = asks.first[int(row)]
                others = [left for j, left in asks.rooms.get(row, {}).items() if j != mine]
                room = min(others, default=INF)
                if not _another(facts, stays, int(row), asks.first[int(row)], realm):
                    asks.price[int(row)] = INF
                elif np.isfinite(room):
                    asks.price[int(row)] = (va[row] + room) / 2
                else:
                    asks.price[int(row)] = float(va[row]) if host_a[row] else INF
    for row, (price, more) in prices.own.get(realm, {}).items():
        if not 0 <= row < len(a) or not own[row]:
            continue
        if not np.isfinite(asks.second[row]):
            # No two come, so who stays takes whatever the one who comes is asked.
            if np.isfinite(asks.price[row]):
                asks.price[row] = price + more.get(asks.first[row], 0.0)
        else:
            # Any two pay no more than the option: the price twice, and all that is on top of it.
            over = max(0.0, 2 * price + sum(more.values()) - float(option[row]))
            a[row] = b[row] = price - over / 2
            asks.price.pop(row, None)
            asks.each[row] = {j: price - over / 2 + extra for j, extra in more.items()}
    return a, b, asks


def _hosts(
    facts: Facts, stays: dict[int, list[Stay]], realm: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """For both sides of each option: whether a spread job that stays could take it."""
    table = facts.problem.table
    found = np.zeros((2, len(table)), dtype=bool)
    for group in facts.by_class:
        rows = group.rows
        for position in np.flatnonzero(facts.in_realm[realm][group.jobs]):
            j = int(group.jobs[position])
            for t in {stay.gpu_type for stay in stays.get(j, ())} if facts.spread[j] else ():
                here = facts.pair[rows] & (table.gpus[rows] == 1) & (table.type_id[rows] == t)
                here &= group.usable[position]
                for side in (0, 1):
                    found[side][rows[here & (group.side == side)]] = True
    found[:, facts.own] = found[:, facts.own].any(axis=0)
    return found[0], found[1]


def _another(facts: Facts, stays: dict[int, list[Stay]], row: int, job: int, realm: int) -> bool:
    """Whether somebody else of the class, who consents, could be host to a job by the option."""
    table = facts.problem.table
    what = (int(table.type_id[row]), int(table.gpus[row]))
    (group,) = [group for group in facts.by_class if job in group.jobs]
    able = group.usable[:, group.rows == row].any(axis=1) & facts.in_realm[realm][group.jobs]
    return any(
        j != job and any((stay.gpu_type, stay.gpus) == what for stay in stays.get(j, ()))
        for j in group.jobs[able].tolist()
    )


def _loose(facts: Facts, realm: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """For both sides of each option: whether a spread job could come to it."""
    found = np.zeros((2, len(facts.problem.table)), dtype=bool)
    for group in facts.by_class:
        member = (
            facts.by_rate[group.jobs] & facts.free[group.jobs] & facts.in_realm[realm][group.jobs]
        )
        usable = group.usable[member].any(axis=0)
        for side in (0, 1):
            found[side][group.rows[usable & (group.side == side)]] = True
    return found[0], found[1]
