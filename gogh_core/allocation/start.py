"""Where the column generation starts: the first columns and the first basis.

The nearer the start is to a plan, the fewer steps the simplex needs. Everybody who runs goes on,
everybody else runs alone where that is cheapest; what does not fit the simplex mends on its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gogh_core.allocation.master import Master
from gogh_core.allocation.prices import Prices
from gogh_core.allocation.stays import both_columns

if TYPE_CHECKING:
    from gogh_core.allocation.pricing import Pricer

__all__ = ["Basis", "first_basis", "first_columns"]

Basis = list[tuple[int, int]]
"""Columns that are basic, each instead of a row that it is in."""
_TYPES = 2
"""GPU types on which a group is alone in the first LP; others come where they are worth it."""
_FEW = 200
"""Up to so many groups columns cost nothing, and MIPs have more to choose from."""


def first_columns(pricer: Pricer) -> None:
    """Every group alone on its cheapest types, and everybody where they are."""
    c, master = pricer.c, pricer.master
    zero = Prices(
        np.zeros(len(c.groups)),
        np.array([kind.use_w / kind.size for kind in c.kinds]),
        np.zeros(len(c.kinds)),
        np.zeros(len(c.kinds)),
        np.zeros(len(c.kinds)),
        np.zeros(len(c.cells)),
        np.zeros(len(c.owners)),
        0.0,
        0.0,
    )
    place_cost, places = pricer.place_prices(zero)
    option = c.net_w + place_cost[pricer.place_of]
    many = len(c.groups) > _FEW and not pricer.spread
    types = _TYPES if many else len(c.idle)
    for block in pricer.blocks:
        if pricer.stop():
            break
        rows = c.side_row[block.sides]
        alone = ~pricer.side_pair[block.sides] & np.isfinite(option[rows])
        for at, group in enumerate(block.groups):
            if not block.free[at]:
                continue
            index = np.flatnonzero(group.usable & alone)
            seen: set[int] = set()
            for s in index[np.argsort(option[rows[index]], kind="stable")]:
                row = int(rows[s])
                t = int(c.table.type_id[row])
                place = places[pricer.place_of[row]]
                if t not in seen and place is not None and len(seen) < types:
                    seen.add(t)
                    master.alone(group, row, place)
    for stay in pricer.stays:
        for side in stay.alone:
            master.stay(stay.group, int(c.side_row[side]))
    both_columns(pricer)
    if pricer.spread:
        from gogh_core.allocation.spread import first_bundles

        first_bundles(pricer)


def first_basis(master: Master) -> Basis:
    """Everybody in their first way; each column is basic instead of a row that is then tight.

    Rows of jobs, of options, of GPUs and of servers follow one another: no column of a later kind
    is in a row of an earlier one, so the basis can be solved row by row.
    """
    c, program = master.c, master.program
    if c.spread.any():
        # Measured: from elsewhere their proofs take longer.
        return list(zip(master.wait_columns, master.job_rows, strict=True))
    chosen, second = _first_ways(master)
    basis = [(chosen[group.index], master.job_rows[group.index]) for group in c.groups]
    singles: dict[int, int] = {}
    for at, column in enumerate(program.columns):
        if column.what[0] == "single":
            singles.setdefault(program.row_of["slot", column.what[1], 0, -1], at)
    basis += [(at, slot) for slot, at in singles.items()]
    taken, held = np.zeros(len(c.kinds)), set[int]()
    for group in c.groups:
        if group.index in second:
            continue
        for row, value in _entries(master, chosen[group.index], singles):
            key = program.row_keys[row]
            if key[0] == "gpus":
                taken[key[1]] += value * group.count
            elif key[0] == "cell":
                held.add(row)
    occupied = np.zeros(len(c.kinds))
    for server, at in master.server_columns.items():
        tight = [row for row in program.columns[at].rows if row in held]
        if tight:
            basis.append((at, tight[0]))
            occupied[c.kind_of[server]] += 1
    for kind in c.kinds:
        k = kind.index
        basis.append((master.taken_columns[k], master.cap_rows[k]))
        stays = occupied[k] > 0 and occupied[k] * kind.size >= taken[k]
        basis.append((master.on_columns[k], master.occ_rows[k] if stays else master.room_rows[k]))
    return basis


def _entries(master: Master, at: int, singles: dict[int, int]) -> list[tuple[int, float]]:
    """What a first way puts into rows, with the option that it fills."""
    columns = master.program.columns
    entries = list(zip(columns[at].rows, columns[at].values, strict=True))
    for row in columns[at].rows:
        if row in singles:
            single = columns[singles[row]]
            entries += zip(single.rows, single.values, strict=True)
    return entries


def _first_ways(master: Master) -> tuple[list[int], set[int]]:
    """For each group a column (as now, else the first alone, else waiting), and who is second.

    Two that share are one column, which is the first one's; the second's is in the basis at 0.
    """
    c = master.c
    ranks = {"both": 0, "stay": 1, "alone": 2, "wait": 3}
    best: list[tuple[int, float, int]] = [(4, 0.0, -1)] * len(c.groups)
    second: set[int] = set()
    for at, column in enumerate(master.program.columns):
        what = column.what[0]
        if what in ("both", "stay"):
            group, cost = int(c.group_of[column.what[1]]), column.cost
        elif what in ("alone", "wait"):
            group, cost = column.what[1], 0.0
        else:
            continue
        best[group] = min(best[group], (ranks[what], cost, at))
        if what == "both":
            second.add(int(c.group_of[column.what[2]]))
    return [at for _, _, at in best], second
