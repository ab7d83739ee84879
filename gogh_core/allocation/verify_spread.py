"""The cheapest slots of a spread job that reach its requirement together."""

from __future__ import annotations

import numpy as np

from gogh_core.allocation.verify_facts import INF, Array

__all__ = ["choose", "cover"]

_GRID = 4000


def cover(throughput: Array, price: Array, required: float, most: int) -> float:
    """The cheapest at most `most` slots that reach the requirement together (at least one)."""
    finite = np.isfinite(price)
    got, cost = _front(np.minimum(throughput[finite], required), price[finite], required)
    if not len(got):
        return INF
    reach, paid = got, cost
    for _ in range(most - 1):
        total = np.minimum((reach[:, None] + got[None, :]).ravel(), required)
        spent = (paid[:, None] + cost[None, :]).ravel()
        more, price = _front(np.append(reach, total), np.append(paid, spent), required)
        if np.array_equal(more, reach) and np.array_equal(price, paid):
            break  # One slot more changes nothing, so no number does.
        reach, paid = more, price
    return _reached(reach, paid, required)


def choose(ways: list[tuple[Array, Array]], required: float) -> float:
    """The cheapest one way for each GPU that together reach the requirement."""
    reach, paid = np.zeros(1), np.zeros(1)
    for throughput, price in ways:
        finite = np.isfinite(price)
        if not finite.any():
            return INF
        total = np.minimum((reach[:, None] + throughput[finite][None, :]).ravel(), required)
        reach, paid = _front(total, (paid[:, None] + price[finite][None, :]).ravel(), required)
    return _reached(reach, paid, required)


def _reached(reach: Array, paid: Array, required: float) -> float:
    return float(paid[reach >= required * (1 - 1e-9) - 1e-9].min(initial=INF))


def _front(reach: Array, paid: Array, required: float) -> tuple[Array, Array]:
    """What is not worse in both; a long front is rounded up to a grid (still a relaxation)."""
    if len(reach) > _GRID and required > 0:
        step = required / _GRID
        reach = np.minimum(np.ceil(reach / step) * step, required)
    order = np.lexsort((paid, -reach))
    reach, paid = reach[order], paid[order]
    lowest = np.minimum.accumulate(paid)
    keep = np.ones(len(paid), dtype=bool)
    keep[1:] = paid[1:] < lowest[:-1]
    return reach[keep], paid[keep]
