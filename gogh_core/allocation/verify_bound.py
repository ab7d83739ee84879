"""The bound that a certificate proves, worked out without any solver.

A certificate is a tree: inner nodes split on the number of servers (or GPUs) in use of one kind,
so that every plan is in one of the leaves; a leaf has prices (dual values). Whatever the prices
are, the cheapest way for each job to pay them, plus what the servers earn, is below the cost of
every plan in that leaf (weak duality). The bound is the lowest leaf.

Prices: a job pays for the GPUs of the kind it takes, for the cells it stays on, for quotas,
moves and the power cap. Two that share pay one price for each side of the option; the two sides
together cost no more than the option does. Side prices are split here from what jobs offer.

`verify_facts` what does not depend on prices, `verify_prices` the prices of a leaf,
`verify_sides` what the two sides of a pair pay, `verify_stays` what staying costs,
`verify_spread` the cheapest slots of a spread job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gogh_core.allocation.problem import Problem
from gogh_core.allocation.verify_facts import INF, Array, Facts
from gogh_core.allocation.verify_prices import Cut, Prices, way_of, ways_price
from gogh_core.allocation.verify_sides import side_prices
from gogh_core.allocation.verify_spread import cover
from gogh_core.allocation.verify_stays import stay_prices, stays_of

__all__ = ["Leaves", "bound_of"]


def bound_of(problem: Problem, certificate: Mapping[str, Any], enough: float = INF) -> float:
    """The largest lower bound on the cost of any plan that the certificate proves.

    It is never below what no prices at all prove: each job's cheapest way, GPUs for nothing. Where
    the certificate's own prices prove `enough` that is not looked at.
    """
    with np.errstate(all="ignore"):  # Prices beyond all numbers give NaN, which proves nothing.
        return _bound_of(problem, certificate, enough)


def _bound_of(problem: Problem, certificate: Mapping[str, Any], enough: float) -> float:
    facts = Facts(problem, str(certificate.get("kinds", "likeness")))
    root = certificate.get("root", {})
    lowest = INF
    stack: list[tuple[Any, dict[int, tuple[int, int]], list[Cut]]] = [(root, {}, [])]
    while stack:
        node, box, cuts = stack.pop()
        if "split" not in node:
            proven = leaf_bound(facts, node, box, cuts)
            lowest = min(lowest, -INF if np.isnan(proven) else proven)
            continue
        what, at = str(node["split"]), int(node["at"])
        kind = 0 if what == "way" else int(node["kind"])
        top = len(problem.table) if what == "option" else len(facts.kinds)
        if what != "way" and not 0 <= kind < top:
            raise ValueError(f"there is no {what} {kind}")
        for child, below in ((node["low"], True), (node["high"], False)):
            if what == "servers":
                low, high = box.get(kind, (0, facts.kinds[kind].number))
                pair = (low, min(high, at)) if below else (max(low, at + 1), high)
                if pair[0] <= pair[1]:
                    stack.append((child, {**box, kind: pair}, cuts))
            elif what in ("gpus", "option"):
                cut = Cut(what, kind, at if below else at + 1, below)
                stack.append((child, box, [*cuts, cut]))
            elif what == "way":
                way = way_of(facts, node["jobs"], node["way"])
                cut = Cut(what, 0, at if below else at + 1, below, way)
                stack.append((child, box, [*cuts, cut]))
            else:
                raise ValueError(f"a node splits on {what!r}")
    if lowest >= enough:
        return float(lowest)
    return float(max(lowest, leaf_bound(facts, {}, {}, [])))


class Leaves:
    """Bounds of single leaves of one problem, for a search that looks at many."""

    def __init__(self, problem: Problem, by: str) -> None:
        self.facts = Facts(problem, by)

    def bound_w(
        self,
        leaf: Mapping[str, Any],
        servers: dict[int, tuple[int, int]],
        cuts: list[tuple[str, int, int, bool, Any]],
    ) -> float:
        """What a leaf proves; a cut is (what, kind or row, number, at most?, (jobs, way))."""
        mine = [
            Cut(what, kind, value, at_most, None if way is None else way_of(self.facts, *way))
            for what, kind, value, at_most, way in cuts
        ]
        with np.errstate(all="ignore"):
            return leaf_bound(self.facts, leaf, servers, mine)


def leaf_bound(
    facts: Facts, raw: Mapping[str, Any], box: dict[int, tuple[int, int]], cuts: list[Cut]
) -> float:
    prices = Prices(facts, raw, cuts)
    problem = facts.problem
    power = 1 + prices.cap
    total = facts.fixed_power * power + facts.fixed_other - prices.paid_back
    total -= sum(price * problem.quotas[owner] for owner, price in prices.quotas.items())
    total -= prices.moves * (problem.max_moves or 0) + prices.cap * (problem.power_cap_w or 0)
    for k, kind in enumerate(facts.kinds):
        low, high = box.get(k, (0, kind.number))
        use = power * kind.power_w + kind.other_w
        # A server in use has a job on one GPU at least.
        use += prices.empty[k] + prices.whole[k] - prices.occupied[k]
        use -= kind.size * prices.capacity[k]
        total += min(use * low, use * high) - prices.whole[k] * kind.number
    earned = np.zeros(len(facts.kinds))
    by_server: dict[str, float] = {}
    for cell, server in enumerate(facts.cell_server):
        by_server[server] = by_server.get(server, 0.0) + prices.cells[cell]
    for server, paid in by_server.items():
        k = facts.kind_of[server]
        earned[k] += min(0.0, prices.occupied[k] - paid)
    total += float(earned.sum())
    return total + float(cheapest(facts, prices).sum())


def cheapest(facts: Facts, prices: Prices) -> Array:
    """The cheapest way for each job, at these prices."""
    problem, table = facts.problem, facts.problem.table
    power = 1 + prices.cap
    watts = power * (table.power_w - table.gpus * facts.idle[table.type_id])
    option = watts + _place_price(facts, prices, power)
    for row, extra in prices.options.items():
        option[row] += extra
    stays = stays_of(facts, prices, power)
    side_price = [
        side_prices(facts, prices, option, watts, stays, realm)
        for realm in range(len(facts.realms))
    ]
    best = facts.wait_w + prices.wait
    for j, price_j in stay_prices(facts, prices, watts, stays, side_price).items():
        best[j] = min(best[j], price_j + prices.stay[j])
    alone_w = option + stopping(facts, facts.wait_w + prices.wait - best)
    once = facts.move_w + prices.moves * facts.running
    for group in facts.by_class:
        js, rows = group.jobs, group.rows
        alone = ~facts.pair[rows]
        price: Any = np.full((len(js), len(rows)), INF)
        price[:, alone] = alone_w[rows[alone]]
        for realm, (a, b, asks) in enumerate(side_price):
            here = np.where(group.side == 0, a[rows], b[rows])
            here = np.where(alone, INF, here)
            member = facts.in_realm[realm][js]
            asked = np.broadcast_to(here[None, :], price.shape).copy()
            for column in np.flatnonzero(facts.own[rows]):
                row = int(rows[column])
                for j, price_j in asks.each.get(row, {}).items():
                    asked[js == j, column] = price_j
                if row in asks.price:
                    asked[js == asks.first[row], column] = asks.price[row]
            price[member] = np.minimum(price[member], asked[member])
        price = price + prices.quota_of[js][:, None] * table.gpus[rows][None, :]
        price -= facts.surplus[js][:, None] * group.throughput[None, :]
        price += ways_price(facts, prices, group)
        price[~group.usable] = INF
        gang = ~facts.spread[js]
        least = price.min(axis=1, initial=INF)
        full = least + once[js] + facts.surplus[js] * facts.required[js]
        full[~facts.free[js]] = INF
        best[js[gang]] = np.minimum(best[js[gang]], full[gang])
        for position in np.flatnonzero(~gang):
            j = int(js[position])
            if facts.free[j]:
                most = min(problem.jobs[j].max_gpus, facts.gpus)
                cost = cover(group.throughput, price[position], facts.required[j], most)
                cost += once[j] + facts.surplus[j] * facts.required[j]
                best[j] = min(best[j], cost)
    return best


def stopping(facts: Facts, lost: Array) -> Array:
    """For each option alone on new GPUs: what it costs at least to stop who may not move there.

    Who may not move stays on all its GPUs or waits, and then `lost` is what that costs more than
    its cheapest way. Each of its GPUs carries the same part of it, and no GPU is taken twice.
    """
    table, problem = facts.problem.table, facts.problem
    result = np.zeros(len(table))
    held: dict[str, dict[int, float]] = {}
    for j in np.flatnonzero(facts.running & ~facts.free & (lost > 0)).tolist():
        place = problem.jobs[j].place
        for server, gpu in place:
            mine = held.setdefault(server, {})
            mine[gpu] = mine.get(gpu, 0.0) + float(lost[j]) / len(place)
    if not held:
        return result
    least: dict[tuple[int, int], float] = {}
    for one in problem.servers:
        if one.id not in facts.kind_of:
            continue
        t = facts.kinds[facts.kind_of[one.id]].gpu_type
        there = held.get(one.id, {})
        costs = np.cumsum(np.sort([there.get(gpu, 0.0) for gpu in range(one.gpus)]))
        for m, cost in enumerate(costs.tolist(), 1):
            least[t, m] = min(least.get((t, m), INF), cost)
    for row in np.flatnonzero(~facts.pair).tolist():
        result[row] = least.get((int(table.type_id[row]), int(table.gpus[row])), 0.0)
    return result


def _place_price(facts: Facts, prices: Prices, power: float) -> Array:
    """The cheapest GPUs for each option on any kind; whole servers for what is larger than one."""
    table = facts.problem.table
    result = np.full(len(table), INF)
    keys = table.type_id * (int(table.gpus.max(initial=0)) + 1) + table.gpus
    for key in np.unique(keys):
        rows = np.flatnonzero(keys == key)
        t, m = int(table.type_id[rows[0]]), int(table.gpus[rows[0]])
        kinds = [k for k, kind in enumerate(facts.kinds) if kind.gpu_type == t]
        if m <= facts.largest[t]:
            fits = [prices.gpu[k] for k in kinds if facts.kinds[k].size >= m]
            result[rows] = m * min(fits) if fits else INF
        else:
            result[rows] = _whole(facts, prices, power, kinds, m)
    return result


def _whole(facts: Facts, prices: Prices, power: float, kinds: list[int], m: int) -> float:
    """The cheapest whole servers with m GPUs together, of each kind no more than there are."""
    if m > sum(facts.kinds[k].size * facts.whole[k] for k in kinds):
        return INF
    best = np.full(m + 1, INF)
    best[0] = 0.0
    for k in kinds:
        kind = facts.kinds[k]
        use = power * kind.power_w + kind.other_w + prices.whole[k]
        before = best.copy()
        for number in range(1, min(facts.whole[k], m // kind.size) + 1):
            gpus = number * kind.size
            best[gpus:] = np.minimum(best[gpus:], before[: m + 1 - gpus] + number * use)
    return float(best[m])
