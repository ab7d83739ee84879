"""What it costs a running job to stay where it is: alone, with who comes, with who stays too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.problem import Gpu, Problem
from gogh_core.allocation.verify_facts import INF, Array, Facts, JobClass
from gogh_core.allocation.verify_prices import Prices
from gogh_core.allocation.verify_spread import choose

if TYPE_CHECKING:
    from gogh_core.allocation.verify_sides import Asks

__all__ = ["Stay", "stay_prices", "stays_of"]


@dataclass(slots=True)
class Stay:
    """A running job's own place: what its GPUs cost, or each of them for a spread job."""

    job: int
    gpu_type: int
    gpus: int
    price: float
    place: frozenset[Gpu]


def stays_of(facts: Facts, prices: Prices, power: float) -> dict[int, list[Stay]]:
    """Where each running job can stay; a spread job has one entry for each GPU."""
    problem = facts.problem
    types = {name: i for i, name in enumerate(problem.table.types)}
    found: dict[int, list[Stay]] = {}
    for j, job in enumerate(problem.jobs):
        if not job.at or any(server not in facts.kind_of for server, _ in job.place):
            continue
        servers = {server for server, _ in job.place}
        t = types[problem.server_of[next(iter(servers))].gpu_type]
        if job.mode == "spread":
            if len(job.place) > job.max_gpus:
                continue
            entries = []
            for gpu in sorted(job.place):
                t = types[problem.server_of[gpu[0]].gpu_type]
                cell = facts.cell_at[gpu]
                price = prices.gpu[facts.kind_of[gpu[0]]]
                price += prices.cells[cell] / facts.cell_size[cell]
                entries.append(Stay(j, t, 1, float(price), frozenset([gpu])))
            found[j] = entries
            continue
        m = len(job.place)
        if m not in job.gpu_counts:
            continue
        if m <= facts.largest[t]:
            if len(servers) > 1:
                continue
            price = m * prices.gpu[facts.kind_of[next(iter(servers))]]
        else:
            if sum(problem.server_of[server].gpus for server in servers) != m:
                continue
            price = 0.0
            for server in servers:
                kind = facts.kinds[facts.kind_of[server]]
                price += power * kind.power_w + kind.other_w + prices.whole[facts.kind_of[server]]
        if m <= facts.largest[t]:
            price += sum(prices.cells[cell] for cell in facts.cells_of[j])
        found[j] = [Stay(j, t, m, float(price), job.place)]
    return found


def stay_prices(
    facts: Facts,
    prices: Prices,
    watts: Array,
    stays: dict[int, list[Stay]],
    side_price: list[tuple[Array, Array, Asks]],
) -> dict[int, float]:
    """The cheapest way to stay for each running job that can."""
    problem, table = facts.problem, facts.problem.table
    group_of = {int(j): (g, p) for g in facts.by_class for p, j in enumerate(g.jobs)}
    columns: dict[int, dict[int, int]] = {}
    at_place: dict[frozenset[Gpu], list[int]] = {}
    for j, entries in stays.items():
        for stay in entries:
            at_place.setdefault(stay.place, []).append(j)
    result: dict[int, float] = {}
    for j, entries in stays.items():
        group, position = group_of[j]
        rows = group.rows
        ways: list[tuple[Array, Array]] = []
        for stay in entries:
            here = (table.type_id[rows] == stay.gpu_type) & (table.gpus[rows] == stay.gpus)
            here &= group.usable[position]
            index = np.flatnonzero(here)
            price = np.full(len(index), INF)
            alone = ~facts.pair[rows[index]]
            price[alone] = watts[rows[index]][alone]
            for realm, (a, b, asks) in enumerate(side_price):
                if not facts.in_realm[realm][j]:
                    continue
                other = np.where(group.side[index] == 0, b[rows[index]], a[rows[index]])
                for at in np.flatnonzero(facts.own[rows[index]]).tolist():
                    row = int(rows[index[at]])
                    if row in asks.first and not np.isfinite(asks.second[row]):
                        # One comes at most, and is asked a price of its own.
                        other[at] = asks.price.get(row, INF) if asks.first[row] != j else INF
                        continue
                    for i, price_i in asks.each.get(row, {}).items():
                        other[at] = max(other[at], price_i if i != j else other[at])
                    if row in asks.price and asks.first[row] != j:
                        other[at] = max(other[at], asks.price[row])
                with np.errstate(invalid="ignore"):
                    ask = np.where(np.isfinite(other), watts[rows[index]] - other, INF)
                price = np.minimum(price, np.where(alone, INF, ask))
            price = price + stay.price
            for i in at_place[stay.place]:
                if i != j and _consent(problem, i, j):
                    theirs, place = group_of[i]
                    mine = columns.setdefault(id(theirs), {})
                    if not mine:
                        mine.update((int(row), at) for at, row in enumerate(theirs.rows))
                    partner = (theirs, place, mine)
                    _together(facts, prices, watts, stay, group, index, partner, i, price)
            price = price + prices.quota_of[j] * stay.gpus
            price = price - facts.surplus[j] * group.throughput[index]
            ways.append((group.throughput[index], price))
        extra = facts.surplus[j] * facts.required[j]
        if problem.jobs[j].mode == "spread":
            result[j] = choose(ways, facts.required[j]) + extra
        else:
            result[j] = float(ways[0][1].min(initial=INF)) + extra
    return result


def _consent(problem: Problem, i: int, j: int) -> bool:
    a, b = problem.jobs[i], problem.jobs[j]
    if a.shareable is False or b.shareable is False:
        return False
    return a.owner == b.owner or (a.shareable is True and b.shareable is True)


def _together(
    facts: Facts,
    prices: Prices,
    watts: Array,
    stay: Stay,
    group: JobClass,
    index: npt.NDArray[np.int64],
    partner: tuple[JobClass, int, dict[int, int]],
    i: int,
    price: Array,
) -> None:
    """Both stay on the same GPUs: each pays half of what is left after both offers."""
    other, position, mine = partner
    j = stay.job
    table = facts.problem.table
    for at, side_index in enumerate(index.tolist()):
        row = int(group.rows[side_index])
        if not facts.pair[row] or row not in mine:
            continue
        column = mine[row]
        want = int(table.class_b[row] if group.side[side_index] == 0 else table.class_a[row])
        if table.classes[want] != facts.problem.jobs[i].job_class:
            continue
        if not other.usable[position, column]:
            continue
        offer_j = _offer(facts, prices, j, float(group.throughput[side_index]), stay.gpus)
        offer_i = _offer(facts, prices, i, float(other.throughput[column]), stay.gpus)
        tie = _tie_price(facts, prices, stay, row, i)
        if tie is not None:
            mine_w, other_w = tie
        else:
            mine_w, other_w = offer_j, offer_i
        left = watts[row] + stay.price - mine_w - other_w
        price[at] = min(price[at], mine_w + left / 2)


def _tie_price(
    facts: Facts, prices: Prices, stay: Stay, row: int, i: int
) -> tuple[float, float] | None:
    """What the certificate asks of the two that go on sharing a GPU by an option, mine first."""
    if stay.gpus != 1 or not (facts.spread[i] or facts.spread[stay.job]):
        return None
    ((server, gpu),) = stay.place
    given = prices.ties.get((server, gpu, row))
    if given is None:
        return None
    table, j = facts.problem.table, stay.job
    first = (
        j < i
        if facts.own[row]
        else table.classes[int(table.class_a[row])] == (facts.problem.jobs[j].job_class)
    )
    return given if first else (given[1], given[0])


def _offer(facts: Facts, prices: Prices, j: int, throughput: float, gpus: int) -> float:
    """What a job that stays would pay for a side: its value less what it pays elsewhere."""
    if facts.spread[j]:
        value = prices.worth[j] * min(throughput, facts.required[j])
    else:
        value = prices.jobs[j] - prices.stay[j] - facts.surplus[j] * facts.required[j]
    return float(value - prices.quota_of[j] * gpus + facts.surplus[j] * throughput)
