"""What each side of a shared option is asked, where spread jobs could take it.

The LP's dual values leave that open. `settle` chooses among values that prove the same those under
which few columns look worth adding that are not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.prices import Prices
from gogh_core.allocation.pricing import Pricer

__all__ = ["loose_sides", "settle"]

Floats = npt.NDArray[np.float64]
INF = np.inf
_LESS_W = 1e-6
"""So that being alone is cheaper by a hair: what costs the same would hide a better way to stay."""


def settle(pricer: Pricer, prices: Prices) -> None:
    """Ask each side as much as may be asked: the LP leaves open who of two pays for an option.

    Left as they come, most prices of sides are 0, and spread jobs try one side after the other for
    nothing. More may be asked while the two sides cost no more than the option, and who stays
    gains nothing by taking somebody in.
    """
    slots: dict[int, list[tuple[int, int]]] = {}
    for row, side, realm in prices.slots:
        slots.setdefault(realm, []).append((row, side))
    option = pricer.option_prices(prices, pricer.place_prices(prices)[0])
    bids = [pricer.offers(block, prices) for block in pricer.blocks]
    for realm, mine in slots.items():
        _settle(pricer, prices, option, pricer._tops(bids, realm)[0], realm, mine)


def _settle(
    pricer: Pricer,
    prices: Prices,
    option: Floats,
    top: Floats,
    realm: int,
    slots: list[tuple[int, int]],
) -> None:
    c = pricer.c
    loose, most = loose_sides(pricer, realm), _host_gains(pricer)
    for row, side in slots:
        at = int(pricer.pos[side][row])
        other = int(pricer.other_side[at])
        asked = -prices.slots[row, side, realm]
        if not loose[at]:
            if not c.own[row]:  # nobody pays beyond the best offer, so nobody is asked to
                prices.slots[row, side, realm] = -min(asked, max(0.0, float(top[at])))
            continue
        key = (row, 1 - side, realm)
        more = 0.0
        if c.own[row]:
            more = sum(p for mine, p in prices.selves.items() if mine[:2] == (row, realm))
            limit = (float(option[row]) - more) / 2
        else:
            rest = -prices.slots[key] if key in prices.slots else max(0.0, float(top[other]))
            if not loose[other]:
                rest = min(rest, max(0.0, float(top[other])))
            limit = float(option[row]) - rest
        limit = min(limit, (1 + prices.power) * float(most[at]) - more) - _LESS_W
        if np.isfinite(limit) and limit > asked:
            prices.slots[row, side, realm] = -limit
            if not c.own[row] and key in prices.slots:
                prices.slots[key] = -rest


def _host_gains(pricer: Pricer) -> Floats:
    """For each side: watts that coming to it adds where somebody stays; inf where nobody does."""
    c = pricer.c
    if pricer.host_gains is None:
        found = np.full(len(c.side_row), INF)
        for j in np.flatnonzero(c.running).tolist():
            if (stay := c.stay_of(j)) is None:
                continue
            here = c.sides(int(c.cls[j]))
            rows = c.side_row[here]
            places = {
                c.type_index[c.problem.server_of[s].gpu_type] for s, _ in c.problem.jobs[j].place
            }
            gpus = 1 if c.spread[j] else stay[1]
            for t in places if c.spread[j] else {stay[0]}:
                mine = (c.table.type_id[rows] == t) & (c.table.gpus[rows] == gpus)
                mine &= c.groups[c.group_of[j]].usable
                alone = np.flatnonzero(mine & ~c.pair[rows])
                shared = np.flatnonzero(mine & c.pair[rows])
                gain = np.zeros(len(shared))
                if len(alone):
                    best = int(alone[np.argmin(c.net_w[rows[alone]])])
                    slower = c.side_got[here][shared] <= c.side_got[here][best]
                    gain = np.where(slower, c.net_w[rows[shared]] - c.net_w[rows[best]], 0.0)
                others = pricer.other_side[shared + here.start]
                np.minimum.at(found, others, gain)
        pricer.host_gains = found
    return pricer.host_gains


def loose_sides(pricer: Pricer, realm: int) -> npt.NDArray[np.bool_]:
    """For each side: whether a spread job could come to it."""
    c = pricer.c
    if realm not in pricer.loose:
        found = np.zeros(len(c.side_row), dtype=bool)
        for group in pricer.spread:
            if realm in c.job_realms[group.first] and c.free[group.first]:
                found[c.sides(group.cls)] |= group.usable
        pricer.loose[realm] = found
    return pricer.loose[realm]
