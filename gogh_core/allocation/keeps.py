"""Spread jobs that stay where they are: on each of their GPUs alone, with the job that shares it
now, or with somebody who comes; one column is one way for each GPU that together are enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.compiled import Compiled, Group, need_of
from gogh_core.allocation.prices import Prices
from gogh_core.allocation.pricing import Pricer

__all__ = ["add_keeps", "first_keeps", "tied"]

Floats = npt.NDArray[np.float64]
_LABELS = 400

Item = tuple[int, int, str, int, int]
"""(row, side, server, GPU, realm; -1 alone, -2 with who shares the GPU now)."""


def _mate(c: Compiled, j: int, server: str, gpu: int) -> int:
    users = [i for i in c.cells[c.cell_at[server, gpu]].jobs if i != j]
    return users[0] if len(users) == 1 else -1


def tied(pricer: Pricer, c: Compiled, j: int, server: str, gpu: int, row: int, side: int) -> bool:
    """Whether the job and who shares its GPU now may go on by this option, one of them spread."""
    i = _mate(c, j, server, gpu)
    if i < 0 or not c.consent(i, j) or not (c.spread[i] or c.spread[j]):
        return False
    if c.stay_of(i) is None or (not c.spread[i] and len(c.problem.jobs[i].place) != 1):
        return False
    here = c.sides(int(c.cls[i]))
    other = int(pricer.pos[0][row] if c.own[row] else pricer.pos[1 - side][row])
    at = other - here.start
    return bool(0 <= at < here.stop - here.start and c.groups[c.group_of[i]].usable[at])


def _ways(pricer: Pricer, group: Group) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    """For each GPU: its server and number, sides alone, sides tied to its partner, all shared."""
    if group.index not in pricer.keep_ways:
        pricer.keep_ways[group.index] = _worked_out(pricer, group)
    return pricer.keep_ways[group.index]


def _worked_out(
    pricer: Pricer, group: Group
) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    c, j = pricer.c, group.first
    here = c.sides(group.cls)
    found = []
    for server, gpu in sorted(c.problem.jobs[j].place):
        t = c.type_index[c.problem.server_of[server].gpu_type]
        rows = c.side_row[here]
        index = (np.flatnonzero(group.usable & (c.table.type_id[rows] == t)) + here.start).tolist()
        shared = [s for s in index if pricer.side_pair[s]]
        together = [
            s
            for s in shared
            if tied(pricer, c, j, server, gpu, int(c.side_row[s]), int(c.side_no[s]))
        ]
        alone = [s for s in index if not pricer.side_pair[s]]
        found.append((server, gpu, alone, together, shared))
    return found


def first_keeps(pricer: Pricer, c: Compiled, group: Group) -> None:
    """The plainest ways to stay: every GPU alone, and every GPU with its present partner."""
    j = group.first
    ways = _ways(pricer, group)
    for server, gpu, _, together, _ in ways:
        for s in together:
            pricer.master.tie(int(c.side_row[s]), server, gpu)
    for with_mates in (True, False):
        for sign in (1.0, -1.0):
            items: list[Item] = []
            total = 0.0
            for server, gpu, alone, together, _ in ways:
                options = together if with_mates and together else alone
                if not options:
                    break
                s = min(
                    options, key=lambda s: (sign * c.side_got[s], float(c.net_w[c.side_row[s]]))
                )
                realm = -2 if options is together else -1
                items.append((int(c.side_row[s]), int(c.side_no[s]), server, gpu, realm))
                total += float(c.side_got[s])
            if len(items) == len(ways) and total >= need_of(float(c.required[j])):
                pricer.master.keep(group, tuple(items))


def add_keeps(pricer: Pricer, prices: Prices, group: Group, tops: list[tuple[Floats, Any]]) -> int:
    """The cheapest way to stay at these prices, if it is worth adding; the count of new columns."""
    c, j = pricer.c, group.first
    required = float(c.required[j])
    fixed = float(c.surplus[j] * c.required[j]) - float(prices.groups[group.index])
    fixed += prices.ways.get((group.index, ("stay",)), 0.0)
    labels: list[tuple[float, float, tuple[Item, ...]]] = [(0.0, 0.0, ())]
    for server, gpu, alone, together, shared in _ways(pricer, group):
        ways = _priced(pricer, prices, group, (server, gpu), alone, together, shared, tops)
        step = [
            (min(reach + got, required), paid + price, (*items, item))
            for reach, paid, items in labels
            for got, price, item in ways
        ]
        labels = _front(step)
    good = [entry for entry in labels if entry[0] >= need_of(required)]
    if not good:
        return 0
    _, paid, items = min(good, key=lambda entry: (entry[1], entry[2]))
    rc = paid + fixed
    pricer.worst += min(0.0, rc)
    if rc >= -1e-7:
        return 0
    added = 0
    for row, side, _, _, realm in items:
        if realm >= 0:
            other = int(pricer.pos[0][row] if c.own[row] else pricer.pos[1 - side][row])
            mate = int(tops[realm][1][other])
            if mate >= 0 and not c.spread[c.groups[mate].first]:
                added += pricer.master.side(c.groups[mate], row, 1 - side, realm)
    return added + pricer.master.keep(group, items)


def _priced(
    pricer: Pricer,
    prices: Prices,
    group: Group,
    at: tuple[str, int],
    alone: list[int],
    together: list[int],
    shared: list[int],
    tops: list[tuple[Floats, Any]],
) -> list[tuple[float, float, Item]]:
    """(throughput, price, item) of every way to stay on one GPU."""
    c, j = pricer.c, group.first
    server, gpu = at
    cell = c.cell_at[server, gpu]
    place = float(prices.gpus[c.kind_of[server]])
    place += float(prices.cells[cell]) / len(c.cells[cell].gpus)
    quota = float(prices.quotas[c.owner[j]]) if c.owner[j] >= 0 else 0.0
    found: list[tuple[float, float, Item]] = []

    def add(s: int, price: float, realm: int) -> None:
        got = float(c.side_got[s])
        item = (int(c.side_row[s]), int(c.side_no[s]), server, gpu, realm)
        found.append((got, price + quota - float(c.surplus[j]) * got, item))

    for s in alone:
        add(s, (1 + prices.power) * float(c.net_w[c.side_row[s]]) + place, -1)
    for s in together:
        row = int(c.side_row[s])
        side = int(c.side_no[s])
        if c.own[row]:
            side = 0 if min(c.cells[cell].jobs) == j else 1
        add(s, -prices.ties.get((server, gpu, row, side), 0.0), -2)
    for realm in c.job_realms[j]:
        top, who = tops[realm]
        for s in shared:
            row = int(c.side_row[s])
            other = int(pricer.other_side[s])
            dual = prices.slots.get((row, 0 if c.own[row] else 1 - int(c.side_no[s]), realm))
            comes = None if dual is None else -dual
            if comes is None and who[other] >= 0 and who[other] != group.index:
                comes = float(top[other])
            if comes is not None and c.own[row]:
                comes += sum(p for key, p in prices.selves.items() if key[:2] == (row, realm))
            if comes is not None and np.isfinite(comes):
                add(s, (1 + prices.power) * float(c.net_w[row]) + place - comes, realm)
    return found


def _front(
    step: list[tuple[float, float, tuple[Item, ...]]],
) -> list[tuple[float, float, tuple[Item, ...]]]:
    """What is not worse in both, the most throughput first."""
    step.sort(key=lambda entry: (-entry[0], entry[1], entry[2]))
    kept: list[tuple[float, float, tuple[Item, ...]]] = []
    lowest = float("inf")
    for entry in step:
        if entry[1] < lowest - 1e-12:
            kept.append(entry)
            lowest = entry[1]
    if len(kept) > _LABELS:
        # Both ends matter: much throughput, and little money.
        kept = kept[:: len(kept) // _LABELS + 1] + kept[-1:]
    return kept
