"""Branch and bound on the numbers of servers (then GPUs) in use, for problems small enough.

The tree is the certificate: its leaves cover every plan, each leaf's prices prove its bound.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from gogh_core.allocation.colgen import WHOLE, Box, Cuts, Search
from gogh_core.allocation.lp import LpResult
from gogh_core.allocation.mapping import map_counts
from gogh_core.allocation.pricing import Prices
from gogh_core.allocation.verify_bound import bound_of

__all__ = ["prove"]

_NODES = 600
_TRIES = 16
_NO_LIMIT = 10**9
"""What only cuts may bound: a bound that is no cut would have a price that nobody can check."""
_TOLERANCE = 1e-5


@dataclass(slots=True)
class _Node:
    """A branch: its bounds, its LP, and the place in the certificate's tree."""

    box: Box
    result: LpResult
    bound_w: float
    raw: dict[str, Any]
    cuts: Cuts = ()


def prove(search: Search, best: Any, gap: float) -> bool:
    """Branch until the gap is proven; False when the clock stopped it."""
    c = search.c
    root: dict[str, Any] = {}
    search.set_box({})
    found = search.generate(_TOLERANCE)
    if found is None:
        return False
    first = _node(search, {}, found, root)
    heap: list[tuple[float, int, _Node]] = [(first.bound_w, 0, first)]
    count = 1
    tried: set[tuple[Any, ...]] = set()
    current: Box = {}
    stuck: list[_Node] = []
    started = time.monotonic()
    bound_of(c.problem, {"kinds": "likeness", "root": root})
    leaf_s = time.monotonic() - started
    in_time = True
    while heap and count < _NODES:
        # Every leaf is evaluated twice at the end: for the plan, and by the verifier.
        if search.left_s() < 2.5 * leaf_s * (len(heap) + len(stuck) + 2):
            in_time = False
            break
        bound_w, _, node = heap[0]
        bound_w = min([bound_w, *(other.bound_w for other in stuck)])
        if best.cost_w - bound_w <= gap * abs(bound_w) * 0.98 + 1e-9 or search.out_of_time():
            break
        heapq.heappop(heap)
        split = _split(search, node.result)
        if split is None:
            # Whole in everything that can be split on: its rounding is as good as it gets.
            stuck.append(node)
            continue
        what, k, at = split
        before = dict(node.raw)
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        node.raw.clear()
        node.raw.update({"split": what, "kind": k, "at": at, "low": low, "high": high})
        for raw, below in ((low, True), (high, False)):
            box = dict(node.box)
            top = len(c.kinds[k].servers) if what == "servers" else _NO_LIMIT
            span = box.get((what, k), (0, top))
            box[what, k] = (span[0], at) if below else (at + 1, span[1])
            cuts = node.cuts
            if what != "servers":
                cuts = (*cuts, (what, k, at if below else at + 1, below))
            if box[what, k][0] > box[what, k][1]:
                raw.update(before)
                continue
            search.set_box(box, before=current)
            current = box
            solved = search.generate(_TOLERANCE)
            count += 1
            if solved is None:
                # No proof of its own: the parent's prices hold here too.
                raw.update(
                    {**before, "cuts": [*before.get("cuts", []), *([0.0] * (what != "servers"))]}
                )
                kept = _Node(box, node.result, node.bound_w, raw, cuts)
                stuck.append(kept)
                continue
            child = _node(search, box, solved, raw, cuts)
            heapq.heappush(heap, (child.bound_w, count, child))
            _try(search, best, child, gap, tried)
    search.set_box({}, before=current)
    certificate = {"kinds": "server" if c.by_server else "likeness", "root": root}
    bound_w = bound_of(c.problem, certificate)
    if bound_w > best.bound_w:
        best.bound_w, best.certificate = bound_w, certificate
    return in_time and not search.out_of_time()


def _node(
    search: Search,
    box: Box,
    found: tuple[LpResult, Prices],
    raw: dict[str, Any],
    cuts: Cuts = (),
) -> _Node:
    result, prices = found
    raw.update(search.leaf(prices, cuts))
    bound = result.cost + search.c.fixed_w + search.pricer.worst
    return _Node(box, result, bound, raw, cuts)


def _split(search: Search, result: LpResult) -> tuple[str, int, int] | None:
    """The number of servers (then GPUs) that is farthest from whole."""
    for what, columns in (
        ("servers", search.master.on_columns),
        ("gpus", search.master.taken_columns),
    ):
        values = result.x[columns]
        off = np.abs(values - np.round(values))
        if len(off) and off.max() > WHOLE:
            weight = off
            if what == "servers":
                weight = off * np.array([abs(k.use_w) + 1e-9 for k in search.c.kinds])
            k = int(np.argmax(np.where(off > WHOLE, weight, -1)))
            return what, k, int(np.floor(values[k]))
    return _split_option(search, result)


def _split_option(search: Search, result: LpResult) -> tuple[str, int, int] | None:
    """The option whose count is farthest from whole, weighted by its watts."""
    counts: dict[int, float] = {}
    for index in np.flatnonzero(result.x > WHOLE):
        column = search.master.program.columns[index]
        if column.what[0] in ("single", "pair"):
            counts[column.what[1]] = counts.get(column.what[1], 0.0) + float(result.x[index])
        elif column.what[0] == "bundle":
            for row, _, _, realm in column.what[2]:
                if realm < 0:
                    counts[row] = counts.get(row, 0.0) + float(result.x[index])
    best: tuple[float, int] | None = None
    for row, value in sorted(counts.items()):
        off = abs(value - round(value))
        weight = off * (1 + abs(float(search.c.net_w[row])))
        if off > WHOLE and (best is None or weight > best[0]):
            best = (weight, row)
    if best is None:
        return None
    return "option", best[1], int(np.floor(counts[best[1]]))


def _try(search: Search, best: Any, node: _Node, gap: float, tried: set[tuple[Any, ...]]) -> None:
    """Round a node whose servers are whole."""
    if node.bound_w >= best.cost_w or search.out_of_time():
        return
    values = node.result.x[search.master.on_columns]
    if np.abs(values - np.round(values)).max(initial=0.0) > WHOLE:
        return
    taken = np.round(node.result.x[search.master.taken_columns], 3)
    key = (*np.round(values).astype(int).tolist(), *taken.tolist())
    if key in tried or len(tried) >= _TRIES:
        return
    tried.add(key)
    counts = search.finish(node.result, {}, gap=1e-4)
    for fill in (True, False):
        seats = map_counts(search.c, search.master.program, counts, fill=fill)
        best.offer(search.c, seats, search.solver)
