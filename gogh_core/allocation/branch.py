"""Branch and bound: servers, who waits, GPUs, who stays, types and options, while work is left.

The tree is the certificate: its leaves cover every plan, each leaf's prices prove its bound.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from gogh_core.allocation.certificate import leaf
from gogh_core.allocation.colgen import WHOLE, Box, Cuts, Search
from gogh_core.allocation.compiled import need_of
from gogh_core.allocation.effort import work_of_leaf, work_of_map
from gogh_core.allocation.lp import LpResult
from gogh_core.allocation.mapping import map_counts
from gogh_core.allocation.prices import Prices
from gogh_core.allocation.rounding import Reach, everywhere, finish
from gogh_core.allocation.verify_bound import bound_of
from gogh_core.allocation.ways import Way, jobs_of, ways_of

__all__ = ["offer_counts", "prove"]

_MIP_SHARE = 0.4
"""Share of the work since the start that MIPs at nodes may take."""
_NEAR = 0.1
_EQUAL = 1e-8
"""Share of the cost that prices, which have nine digits, may be off."""
_PLACES = 40
"""Up to so many kinds of servers an option may have a column on each where it fits."""
_PATIENCE = 30
"""Nodes without a better plan after which a MIP may have all groups."""
_NO_LIMIT = 10**9
"""What only cuts may bound: a bound that is no cut would have a price that nobody can check."""


@dataclass(slots=True)
class _Node:
    """A branch: its bounds, its LP, and the place in the certificate's tree."""

    box: Box
    result: LpResult
    bound_w: float
    raw: dict[str, Any]
    cuts: Cuts = ()


def prove(search: Search, best: Any, gap: float, *, nodes: int) -> bool:
    """Branch until the gap is proven or there are that many nodes; False: a limit did."""
    c = search.c
    root: dict[str, Any] = {}
    near = min(max(gap / 10, 1e-9), 5e-4)
    search.set_box({})
    found = search.generate(near)
    if found is None:
        return False
    first = _node(search, {}, found, root)
    heap: list[tuple[float, int, _Node]] = [(first.bound_w, 0, first)]
    count = 1
    tries = _Tries(search, best, gap)
    tries.offer(first)
    current: Box = {}
    stuck: list[_Node] = []
    search.leaf_s = 0.0
    _leaf_bound(search, first)
    finished = True
    while heap and count < nodes:
        if not _can_end(search, len(heap) + len(stuck)):
            finished = False
            break
        bound_w, _, node = heap[0]
        if best.cost_w - bound_w <= (0.98 * gap + _EQUAL) * abs(bound_w) or search.out_of_work():
            break
        heapq.heappop(heap)
        split = _split(search, node)
        if split is None:
            # Whole in everything that can be split on: its rounding is as good as it gets.
            stuck.append(node)
            tries.whole(node)
            continue
        what, k, at = split
        before = dict(node.raw)
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        node.raw.clear()
        node.raw.update({"split": what, "at": at, "low": low, "high": high})
        if what == "way":
            who, way = search.master.ways[k]
            node.raw.update({"jobs": list(map(int, jobs_of(c, who))), "way": list(way)})
        else:
            node.raw["kind"] = k
        for raw, below in ((low, True), (high, False)):
            box = dict(node.box)
            top = len(c.kinds[k].servers) if what == "servers" else _NO_LIMIT
            span = box.get((what, k), (0, top))
            box[what, k] = (span[0], at) if below else (at + 1, span[1])
            cuts = node.cuts
            if what != "servers":
                cuts = (*cuts, (what, k, at if below else at + 1, below))
            inherited = [*before.get("cuts", []), *([0.0] * (what != "servers"))]
            if box[what, k][0] > box[what, k][1]:
                raw.update({**before, "cuts": inherited})
                continue
            search.set_box(box, before=current)
            current = box
            # While the gap is wide a rough LP is enough: what it lacks is in its bound.
            wide = (best.cost_w - bound_w) / (abs(bound_w) or 1.0)
            rough = max(near, min(0.05 * wide, 0.01))
            solved = search.generate(rough, lazy=True)
            if solved is None and not search.out_of_work() and search.relax(box):
                solved = search.generate(rough, lazy=True)
            count += 1
            if solved is None:
                # No proof of its own: the parent's prices hold here too.
                if search.out_of_work():
                    finished = False
                raw.update({**before, "cuts": inherited})
                kept = _Node(box, node.result, node.bound_w, raw, cuts)
                stuck.append(kept)
                continue
            child = _node(search, box, solved, raw, cuts)
            if count % 16 == 0:
                _leaf_bound(search, child)
            heapq.heappush(heap, (child.bound_w, count, child))
            tries.offer(child)
    search.set_box({}, before=current)
    certificate = {"kinds": "server" if c.by_server else "likeness", "root": root}
    bound_w = bound_of(c.problem, certificate)
    if bound_w > best.bound_w:
        best.bound_w, best.certificate = bound_w, certificate
    return finished and not search.out_of_work()


def _can_end(search: Search, leaves: int) -> bool:
    """Whether enough is left to evaluate the leaves twice: for the plan, and by the verifier."""
    evaluations = 3 * (leaves + 8)
    each = work_of_leaf(len(search.c.cls), len(search.c.kinds))
    late = search.effort.is_late(search.leaf_s * evaluations)
    return not late and search.effort.left >= each * evaluations


def _node(
    search: Search,
    box: Box,
    found: tuple[LpResult, Prices],
    raw: dict[str, Any],
    cuts: Cuts = (),
) -> _Node:
    result, prices = found
    raw.update(leaf(search, prices, cuts))
    bound = result.cost + search.c.fixed_w + search.pricer.worst
    node = _Node(box, result, bound, raw, cuts)
    if search.pricer.spread:
        # What spread jobs offer is a guess, so the pricer's estimate is one too.
        node.bound_w = _leaf_bound(search, node)
    return node


def _leaf_bound(search: Search, node: _Node) -> float:
    """What the verifier will find for the leaf; keeps how long that takes."""
    started = time.monotonic()
    c, named = search.c, search.master.ways
    search.effort.spend(work_of_leaf(len(c.cls), len(c.kinds)))
    ways = [
        (jobs_of(c, named[k][0]), named[k][1]) if what == "way" else None
        for what, k, *_ in node.cuts
    ]
    bound_w = search.leaves.bound_w(
        node.raw,
        {k: span for (what, k), span in node.box.items() if what == "servers"},
        [(*cut, way) for cut, way in zip(node.cuts, ways, strict=True)],
    )
    took_s = time.monotonic() - started
    search.leaf_s = took_s if not search.leaf_s else 0.9 * search.leaf_s + 0.1 * took_s
    return bound_w


def _split(search: Search, node: _Node) -> tuple[str, int, int] | None:
    """What is farthest from whole: who waits (most watts), servers, GPUs, who stays, options."""
    master, result = search.master, node.result
    ways = _ways(search, node)
    split = _split_way(search, ways, ("wait",))
    if split is not None:
        return split
    found = _farthest(result.x[master.on_columns], [abs(k.use_w) + 1e-9 for k in search.c.kinds])
    if found is not None:
        return "servers", *found
    found = _farthest(result.x[master.taken_columns], [1.0] * len(search.c.kinds))
    if found is not None:
        return "gpus", *found
    for kinds in (("stay",), ("type",)):
        split = _split_way(search, ways, kinds)
        if split is not None:
            return split
    return _split_option(search, result) or _split_way(search, ways, ("side",))


def _farthest(values: Any, weights: list[float]) -> tuple[int, int] | None:
    """(which, whole number below) of the value farthest from whole, by weight."""
    off = np.abs(values - np.round(values))
    if not len(off) or off.max() <= WHOLE:
        return None
    k = int(np.argmax(np.where(off > WHOLE, off * np.array(weights), -1)))
    return k, int(np.floor(values[k]))


def _ways(search: Search, node: _Node) -> dict[tuple[int, Way], float]:
    """How often each group goes each way in the LP, but for what only slack keeps in bounds."""
    result, master = node.result, search.master
    counts: dict[tuple[int, Way], float] = {}
    for index in np.flatnonzero(result.x > WHOLE).tolist():
        for key, number in ways_of(search.c, master.program.columns[index].what).items():
            counts[key] = counts.get(key, 0.0) + number * float(result.x[index])
    for key, (number, _, _) in master.way_rows.items():
        low, high = node.box.get(("way", number), (0, _NO_LIMIT))
        if not low <= counts.get(key, 0.0) <= high:
            counts.pop(key, None)
    return counts


def _split_way(
    search: Search, counts: dict[tuple[int, Way], float], kinds: tuple[str, ...]
) -> tuple[str, int, int] | None:
    """The way whose count is farthest from whole, weighted by what waiting costs; crowds first."""
    best: tuple[tuple[bool, float], int, Way] | None = None
    for (who, way), value in sorted(counts.items(), key=lambda entry: str(entry[0])):
        off = abs(value - round(value))
        if way[0] not in kinds or off <= WHOLE:
            continue
        weight = off
        if who >= 0:
            weight = off * (1 + float(search.c.wait_w[search.c.groups[who].first]))
        if best is None or (who < 0, weight) > best[0]:
            best = ((who < 0, weight), who, way)
    if best is None:
        return None
    _, who, way = best
    return "way", search.way(who, way), int(np.floor(counts[who, way]))


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


def offer_counts(search: Search, best: Any, counts: dict[int, int]) -> None:
    """Map counts in every way there is; the best plan so far takes what costs less."""
    ways = [(True, False), (False, False)]
    if search.c.running.any():
        ways.append((True, True))
    program, stop = search.master.program, search.out_of_work
    for fill, tidy in ways:
        search.effort.spend(work_of_map(len(search.c.cls)))
        seats = map_counts(search.c, program, counts, fill=fill, tidy=tidy, stop=stop)
        best.offer(search.c, seats, search.solver)


class _Tries:
    """Rounds nodes: each one quickly, some by a MIP while that takes no more than its share."""

    def __init__(self, search: Search, best: Any, gap: float) -> None:
        self.search, self.best, self.gap = search, best, gap
        self.tried: set[tuple[Any, ...]] = set()
        self.idle = 0
        """Nodes since a plan was found that costs less."""
        self.started = search.effort.done
        self.spent = 0.0

    def offer(self, node: _Node) -> None:
        """Round a node; a MIP only where the servers are whole and new."""
        search, best = self.search, self.best
        if node.bound_w >= best.cost_w or search.out_of_work():
            return
        before_w = best.cost_w
        x = node.result.x
        rounded = {i: int(np.floor(v + _NEAR)) for i, v in enumerate(x) if v > 1 - _NEAR}
        if search.pricer.spread:
            rounded.update(self._merged(x))
            rounded.update(self._mixed(x))
        self._map(rounded)
        values = x[search.master.on_columns]
        if np.abs(values - np.round(values)).max(initial=0.0) <= WHOLE:
            self._mip(node, np.round(values).astype(int).tolist())
        self.idle = 0 if best.cost_w < before_w else self.idle + 1

    def _mip(self, node: _Node, servers: list[int]) -> None:
        """A MIP of a few groups; of all if nothing has been found for long."""
        search = self.search
        reach: Reach = "few"
        key: tuple[Any, ...] = (*servers,)
        key += (*np.round(node.result.x[search.master.taken_columns], 3).tolist(),)
        if self.idle >= _PATIENCE and not search.pricer.spread:
            reach, key = "all", ("all", *servers)
        if key in self.tried or self._late():
            return
        self.tried.add(key)
        before = search.effort.done
        slack_w = min(self.gap / 2, 1e-3) * abs(node.result.cost)
        fixed: Box = {("servers", k): (n, n) for k, n in enumerate(servers)}
        box = fixed if reach == "all" else {}
        self._map(finish(search, node.result, box, slack_w=slack_w, reach=reach))
        self.spent += search.effort.done - before

    def whole(self, node: _Node) -> None:
        """A node that no branch divides: a MIP of all groups, each option wherever it fits."""
        search = self.search
        if len(search.c.kinds) > _PLACES or self._late() or node.bound_w >= self.best.cost_w:
            return
        before = search.effort.done
        everywhere(search, node.result)
        self._map(finish(search, node.result, {}, slack_w=0.0, reach="all"))
        self.spent += search.effort.done - before

    def _late(self) -> bool:
        """Whether MIPs have had their share of the work."""
        done = self.search.effort.done - self.started
        return self.spent > max(0.5, _MIP_SHARE * done) or self.search.out_of_work()

    def _map(self, counts: dict[int, int]) -> None:
        offer_counts(self.search, self.best, counts)

    def _merged(self, x: Any) -> dict[int, int]:
        """Bundles that a spread job uses in parts, as the one bundle that they are together."""
        search = self.search
        program, c = search.master.program, search.c
        parts: dict[int, dict[Any, float]] = {}
        for index in np.flatnonzero((x > WHOLE) & (x < 1 - WHOLE)).tolist():
            what = program.columns[index].what
            if what[0] == "bundle" and c.groups[what[1]].count == 1:
                items = parts.setdefault(what[1], {})
                for item in what[2]:
                    items[item] = items.get(item, 0.0) + float(x[index])
        found: dict[int, int] = {}
        for group, items in parts.items():
            whole = [item for item, n in sorted(items.items()) for _ in range(int(n + 0.5))]
            got = sum(search.master.got(row, side) for row, side, _, _ in whole)
            job = c.problem.jobs[c.groups[group].first]
            if not 0 < len(whole) <= job.max_gpus or got < need_of(job.required_throughput):
                continue
            what = ("bundle", group, tuple(whole))
            search.master.bundle(c.groups[group], tuple(whole))
            search.lp.sync()
            found[search.column_of(what)] = 1
        return found

    def _mixed(self, x: Any) -> dict[int, int]:
        """Ways to stay that a spread job uses in parts, as one: on each GPU one of its items."""
        search = self.search
        program, c = search.master.program, search.c
        parts: dict[int, dict[tuple[str, int], dict[Any, float]]] = {}
        for index in np.flatnonzero((x > WHOLE) & (x < 1 - WHOLE)).tolist():
            what = program.columns[index].what
            if what[0] == "keep":
                for row, side, server, gpu, realm in what[2]:
                    here = parts.setdefault(what[1], {}).setdefault((server, gpu), {})
                    here[row, side, realm] = here.get((row, side, realm), 0.0) + float(x[index])
        found: dict[int, int] = {}
        for j, gpus in parts.items():
            left: dict[Any, float] = {}
            for way, n in (item for here in gpus.values() for item in here.items()):
                left[way] = left.get(way, 0.0) + n
            items = []
            for (server, gpu), here in sorted(gpus.items()):
                row, side, realm = max(sorted(here), key=lambda way: left[way])
                left[row, side, realm] -= 1
                items.append((row, side, server, gpu, realm))
            got = sum(search.master.got(row, side) for row, side, _, _, _ in items)
            whole = {(server, gpu) for _, _, server, gpu, _ in items} == c.problem.jobs[j].place
            if whole and got >= need_of(c.required[j]):
                search.master.keep(c.groups[c.group_of[j]], tuple(items))
                search.lp.sync()
                found[search.column_of(("keep", j, tuple(items)))] = 1
        return found
