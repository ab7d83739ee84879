"""One leaf of a certificate: the prices that prove its bound, as `gogh verify` reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.colgen import Cuts, Search
from gogh_core.allocation.compiled import Compiled
from gogh_core.allocation.prices import Prices
from gogh_core.allocation.spread import own_prices, side_prices, tie_prices, worths
from gogh_core.allocation.ways import Way

__all__ = ["leaf"]

Floats = npt.NDArray[np.float64]
_LARGE = 1e6


def leaf(search: Search, prices: Prices, cuts: Cuts = ()) -> dict[str, Any]:
    """The certificate of one leaf: the prices, by job and by kind, and of its cuts."""
    c = search.c
    values = np.zeros(len(c.cls))
    for group in c.groups:
        values[group.jobs] = prices.groups[group.index]
    cells = np.maximum(prices.cells, 0.0)
    whole, occupied = np.maximum(prices.servers, 0.0), np.maximum(prices.occupied, 0.0)
    _lower(search.c, values, cells, whole, occupied)
    empty = np.maximum(prices.empty, 0.0)
    capacity = np.maximum(np.minimum(prices.room, prices.gpus + empty), 0.0)
    bounded = {cut[1] for cut in cuts if cut[0] == "gpus"}
    for k in bounded:
        capacity[k] = max(0.0, float(prices.room[k]))
    raw: dict[str, Any] = {
        "jobs": _rounded(values),
        "capacity": _rounded(capacity),
        "whole": _rounded(whole),
    }
    if empty.any():
        raw["empty"] = _rounded(empty)
    if cuts:
        raw["cuts"] = _cut_prices(prices, cuts, search.master.ways)
    if len(c.cells):
        raw["cells"] = _rounded(cells)
        raw["occupied"] = _rounded(occupied)
    if len(c.owners):
        raw["quotas"] = {
            owner: max(0.0, float(prices.quotas[at])) for at, owner in enumerate(c.owners)
        }
    if prices.moves > 0:
        raw["moves"] = prices.moves
    if prices.power > 0:
        raw["cap"] = prices.power
    if search.pricer.spread:
        raw["worth"] = _rounded(worths(search.pricer, prices))
        raw["sides"], raw["ties"] = side_prices(c, prices), tie_prices(prices)
        raw["own"] = own_prices(search.pricer, prices)
    return raw


def _lower(c: Compiled, values: Floats, cells: Floats, whole: Floats, occupied: Floats) -> None:
    """What a job that may not move pays for a place that is only its own, it need not pay.

    Its price and that of the place are lowered at once, which proves as much; what its stop would
    cost shows then. Where it is the server that is scarce, the prices of all servers of the kind
    are lowered with it.
    """
    paid: dict[str, float] = {}
    held: dict[str, list[int]] = {}
    for at, cell in enumerate(c.cells):
        paid[cell.server] = paid.get(cell.server, 0.0) + float(cells[at])
        if len(cell.jobs) == 1 and not c.free[cell.jobs[0]]:
            held.setdefault(cell.server, []).append(at)
    for kind in c.kinds:
        k, mine = kind.index, [server for server in kind.servers if server in paid]
        spare = [
            occupied[k] - paid[server] + float(cells[held.get(server, [])].sum()) for server in mine
        ]
        less = min([whole[k], occupied[k], *spare])
        if less > 0:
            whole[k] -= less
            occupied[k] -= less
        for server in mine:
            over = paid[server] - float(occupied[k])
            for at in held.get(server, []):
                take = min(float(cells[at]), max(0.0, over))
                cells[at] -= take
                values[c.cells[at].jobs[0]] -= take
                over -= take


def _cut_prices(prices: Prices, cuts: Cuts, ways: list[tuple[int, Way]]) -> list[float]:
    """The tightest cut on each side of a kind carries what GPUs cost beyond their room."""
    result = [0.0] * len(cuts)
    for what, k in {cut[:2] for cut in cuts}:
        if what == "gpus":
            extra = float(prices.gpus[k] + prices.empty[k]) - max(0.0, float(prices.room[k]))
        elif what == "way":
            extra = prices.ways.get(ways[k], 0.0)
        else:
            extra = prices.counts.get(k, 0.0)
        mine = [
            (at, cut[2])
            for at, cut in enumerate(cuts)
            if cut[:2] == (what, k) and cut[3] == (extra > 0)
        ]
        if mine:
            pick = min if extra > 0 else max
            result[pick(mine, key=lambda entry: entry[1])[0]] = extra
    return result


def _rounded(values: Floats) -> list[float]:
    """Prices are as good with nine digits, and half as long in the file; large ones need more."""
    return [float(f"{value:.9g}" if abs(value) < _LARGE else f"{value:.14g}") for value in values]
