"""Whole numbers from the LP: the dive on server counts, and MIPs over what is left to decide.

The LP is nearly integral: once the numbers of servers in use are whole, a few dozen groups are
left, and those go to the solver as one small MIP. Where that is not near enough, all groups do,
with the columns that cost little more than the best ones.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.colgen import WHOLE, Box, Search
from gogh_core.allocation.compiled import Compiled
from gogh_core.allocation.effort import work_of_mip
from gogh_core.allocation.lp import LpResult
from gogh_core.allocation.mip import Part, available, solve_mip
from gogh_core.allocation.prices import Prices
from gogh_core.errors import SolverFailed

__all__ = [
    "WIDE",
    "Reach",
    "dive",
    "everywhere",
    "finish",
    "frees_more",
    "rounded_down",
    "waits_in_parts",
]

Floats = npt.NDArray[np.float64]
_SMALL = 150
"""Up to so many jobs branching is quick, and MIPs get a small share of the work."""
_GLPSOL_COLUMNS = {"gangs": 4000, "spread": 1000}
"""Up to so many columns glpsol, which nothing but the clock can stop, ends within a second."""
_MIP_S = 60.0
"""Seconds for one MIP at most, in an emergency."""
_SHORT_S = 1.5
"""Seconds before the emergency stop in which no MIP is begun."""
WIDE = 3000
"""Up to so many groups a MIP may have all of them, and the gap is proven by branching."""
_NEAR = 0.07
"""Of the mean cost of a job: columns that cost no more than that on top are near."""
Reach = Literal["few", "more", "all"]
_REACH = {"few": (0.13, 150), "more": (0.25, 300)}
"""Of the mean cost of a job what sides to share may cost on top, and the groups that are free."""
_AGAIN = 3
"""Times a MIP is solved when its answer makes a job its own partner, which is forbidden then."""
_DEAR = 5e-4
"""Share of the cost above which rounding a number of servers is tried the other way too."""
_OWN_GROUPS = ("alone", "side", "wait", "bundle")
_OWN_JOBS = ("stay", "host", "both", "keep")


def dive(search: Search, result: LpResult, box: Box, tolerance: float) -> tuple[LpResult, Box]:
    """Fix the numbers of servers in use one after the other, nearest to whole first."""
    fixed = dict(box)
    for _ in range(2 * len(search.c.kinds)):
        x = result.x
        off = [
            (abs(x[i] - round(x[i])), k)
            for k, i in enumerate(search.master.on_columns)
            if abs(x[i] - round(x[i])) > WHOLE
        ]
        if not off or search.out_of_work():
            break
        chosen = [k for _, k in sorted(off)[: max(1, len(off) // 8)]]
        whole = {k: round(x[search.master.on_columns[k]]) for k in chosen}
        found = _fixed_at(search, fixed, whole, tolerance)
        if found is None or found[0].cost > result.cost + _DEAR * abs(result.cost):
            # Rounded down too far; one server more may cost less.
            more = {k: int(np.ceil(x[search.master.on_columns[k]])) for k in chosen}
            other = _fixed_at(search, fixed, more, tolerance) if more != whole else None
            if other is not None and (found is None or other[0].cost < found[0].cost):
                found, whole = other, more
        if found is None:
            break
        fixed.update({("servers", k): (n, n) for k, n in whole.items()})
        result = found[0]
    search.set_box(box, before={("servers", k): (0, 0) for k in range(len(search.c.kinds))})
    return result, fixed


def _fixed_at(
    search: Search, fixed: Box, servers: dict[int, int], tolerance: float
) -> tuple[LpResult, Prices] | None:
    """The LP with these numbers of servers in use as well, or None if the jobs do not fit."""
    search.set_box({**fixed, **{("servers", k): (n, n) for k, n in servers.items()}})
    return search.generate(tolerance, rounds=4)


def finish(
    search: Search, result: LpResult, fixed: Box, *, slack_w: float, reach: Reach = "few"
) -> dict[int, int]:
    """Whole counts: what is whole stays, the rest is one MIP; else rounded down.

    The MIP may stop `slack_w` above its bound. It decides the groups that are not whole and those
    they may share with; `all` frees every group, but only for columns that cost little more than
    the best ones.
    """
    x = result.x
    rounded = rounded_down(x)
    groups: set[int] = set()
    if reach != "all":
        groups = _widened(search, result, _fractional(search, x), *_REACH[reach])
    for _ in range(_AGAIN):
        part = _near(search, result, fixed) if reach == "all" else _part(search, x, fixed, groups)
        found = None if part is None else _solved(search, part, x, slack_w)
        if part is None or found is None:
            return rounded
        inside = set(part.columns)
        counts = {i: n for i, n in rounded.items() if i not in inside}
        counts |= {i: round(value) for i, value in found.items() if round(value) > 0}
        values = np.zeros(len(search.master.program.columns))
        values[list(counts)] = list(counts.values())
        if not search.forbid_selves(values):
            break
    return counts


def everywhere(search: Search, result: LpResult) -> None:
    """What the LP uses on some servers as columns on all servers where it fits.

    The LP may put half of an option here and half there, which no branch tells apart; a MIP can
    put it in one place only if what is in its way has a column elsewhere.
    """
    c, master = search.c, search.master
    for index in np.flatnonzero(result.x > WHOLE).tolist():
        what = master.program.columns[index].what
        if what[0] in ("single", "pair") and len(what[-1]) == 1:
            for kind in _fitting(c, what[1]):
                if what[0] == "single":
                    master.single(what[1], (kind,))
                else:
                    master.pair(what[1], what[2], (kind,))
        elif what[0] == "bundle":
            for at, (row, side, _, realm) in enumerate(what[2]):
                for kind in _fitting(c, row) if realm < 0 else ():
                    items = [*what[2][:at], (row, side, kind, realm), *what[2][at + 1 :]]
                    master.bundle(c.groups[what[1]], tuple(sorted(items)))
    search.lp.sync()
    search.pad(result)


def _fitting(c: Compiled, row: int) -> list[int]:
    """Kinds whose servers can hold an option."""
    t, gpus = int(c.table.type_id[row]), int(c.table.gpus[row])
    return [kind.index for kind in c.kinds if kind.gpu_type == t and kind.size >= gpus]


def frees_more(search: Search, result: LpResult) -> bool:
    """Whether `more` frees somebody whom `few` does not."""
    groups = _fractional(search, result.x)
    few, more = (_widened(search, result, groups, *_REACH[reach]) for reach in ("few", "more"))
    return few != more


def rounded_down(x: Floats, near: float = WHOLE) -> dict[int, int]:
    """What is whole of each column, or nearly so."""
    return {i: int(np.floor(v + near)) for i, v in enumerate(x) if v >= 1 - near}


def _solved(search: Search, part: Part, x: Floats, slack_w: float) -> dict[int, float] | None:
    """The MIP's answer, or None with a note."""
    solver, effort = _worker(search, part), search.effort
    work = work_of_mip(len(part.columns), solver)
    # In small problems branching needs the work more.
    most = max(1.0, 0.05 * effort.left) if len(search.c.cls) <= _SMALL else effort.left
    if search.solver_failed or work > min(most, effort.left) or effort.is_late(_SHORT_S):
        return None
    seconds = min(effort.left_s - 0.5, _MIP_S)
    effort.spend(work)
    columns = search.master.program.columns
    cost_w = abs(sum(columns[i].cost * x[i] for i in part.columns if i < len(x)))
    try:
        gap = min(slack_w / max(cost_w, 1e-9), 0.5)
        outcome = solve_mip(part, solver=solver, gap=gap, time_s=seconds)
    except SolverFailed as error:
        search.solver_failed = True
        search.notes.append(f"{error.what.splitlines()[0][:200]}; rounded without it")
        return None
    if outcome.timed_out:
        # Where the clock stopped it another run may find something else.
        effort.is_late(float("inf"))
        search.notes.append(f"{solver} was stopped after {int(seconds)} s")
    return outcome.found


def _worker(search: Search, part: Part) -> str:
    """The solver for a part: glpsol has no limit of nodes, so what may take it long goes to HiGHS.

    Decision 0503 has the figures.
    """
    if search.solver == "highs" or not available("highs"):
        return search.solver
    kind = "spread" if search.pricer.spread else "gangs"
    return "glpk" if len(part.columns) <= _GLPSOL_COLUMNS[kind] else "highs"


def _near(search: Search, result: LpResult, fixed: Box) -> Part:
    """All columns in use, and those that cost little more at the present prices."""
    near_w = _NEAR * _mean_w(search, result)
    always = ["on", "on_server", "taken", "count", "way", "over"]
    always += ["wait"] if search.pricer.spread else []
    chosen = [
        index
        for index, (x, more_w) in enumerate(zip(result.x, result.reduced, strict=True))
        if x > WHOLE or more_w <= near_w or search.master.program.columns[index].what[0] in always
    ]
    bounds = {
        search.master.on_columns[k]: (max(0.0, low - 1.0), high + 1.0)
        for (what, k), (low, high) in fixed.items()
        if what == "servers"
    }
    return Part(search.master.program, chosen, {}, bounds, loose=_loose(search))


def _mean_w(search: Search, result: LpResult) -> float:
    """What a job costs on average."""
    return abs(result.cost + search.c.fixed_w) / max(1, len(search.c.cls))


def waits_in_parts(search: Search, result: LpResult) -> bool:
    """Whether the LP leaves a part of a job waiting."""
    waiting = float(result.x[search.master.wait_columns].sum())
    return abs(waiting - round(waiting)) > WHOLE


def _fractional(search: Search, x: Floats) -> set[int]:
    """Groups that are not decided by whole numbers."""
    c, columns = search.c, search.master.program.columns
    groups: set[int] = set()
    slots: set[int] = set()
    for index in np.flatnonzero(np.abs(x - np.round(x)) > WHOLE).tolist():
        groups |= _groups_of(c, columns[index].what)
        if columns[index].what[0] in ("pair", "single", "tie"):
            slots.update(_slot_rows(search.master.program, int(index)))
    # A class paired with itself needs an even number: whoever is on such a side is free too.
    for index in np.flatnonzero(x > WHOLE).tolist():
        if slots.intersection(columns[index].rows):
            groups |= _groups_of(c, columns[index].what)
    return groups


def _widened(
    search: Search, result: LpResult, groups: set[int], close: float, most: int
) -> set[int]:
    """Also who shares, or nearly shares, a side with them: pairs only change together."""
    c, program = search.c, search.master.program
    if not groups or len(groups) > most:
        return groups
    near_w = close * _mean_w(search, result)
    slots: set[int] = set()
    for index in range(len(result.reduced)):
        if result.x[index] > WHOLE or result.reduced[index] <= near_w:
            mine = _groups_of(c, program.columns[index].what)
            if mine and mine <= groups:
                slots.update(_slot_rows(program, index))
    wide = set(groups)
    for index in np.flatnonzero(result.x > WHOLE).tolist():
        if slots.intersection(program.columns[index].rows):
            wide |= _groups_of(c, program.columns[index].what)
    return wide if len(wide) <= most else groups


def _part(search: Search, x: Floats, fixed: Box, groups: set[int]) -> Part | None:
    """The columns of these groups and the pairs they touch; everything else is as in x."""
    c, program = search.c, search.master.program
    slots: set[int] = set()
    chosen: list[int] = []
    loose = [
        index
        for index in np.flatnonzero(np.abs(x - np.round(x)) > WHOLE).tolist()
        if program.columns[index].what[0] in ("pair", "single", "tie")
    ]
    for index in loose:
        slots.update(_slot_rows(program, int(index)))
    for index, column in enumerate(program.columns):
        mine = _groups_of(c, column.what)
        if mine and mine <= groups:
            chosen.append(index)
            slots.update(_slot_rows(program, index))
    for index, column in enumerate(program.columns):
        kind = column.what[0]
        if (
            kind in ("pair", "single", "tie")
            and any(row in slots for row in _slot_rows(program, index))
        ) or kind in ("on", "on_server", "taken", "count", "way", "over"):
            chosen.append(index)
    if not groups and not loose:
        return None
    chosen_set = set(chosen)
    settled: dict[int, float] = {}
    for index in np.flatnonzero(x > WHOLE).tolist():
        if int(index) in chosen_set:
            continue
        column = program.columns[index]
        for row, value in zip(column.rows, column.values, strict=True):
            settled[row] = settled.get(row, 0.0) + value * round(x[index])
    bounds: dict[int, tuple[float, float]] = {}
    for (what, k), (low, high) in fixed.items():
        if what == "servers":
            bounds[search.master.on_columns[k]] = (float(low), float(high + 1))
    return Part(program, sorted(chosen_set), settled, bounds, loose=_loose(search))


def _loose(search: Search) -> frozenset[int]:
    """Rows of sides that may stay empty.

    Where two must share, whole numbers may not exist at all: half of a spread job on either side of
    an option does not make one. Gangs need no such thing, and their MIPs are faster without.
    """
    if not search.pricer.spread:
        return frozenset()
    lone = search.c.lone
    return frozenset(
        at
        for at, key in enumerate(search.master.program.row_keys)
        if key[0] == "slot" and key[3] >= 0 and lone[1 - key[2]][key[1]] >= 0
    )


def _slot_rows(program: Any, index: int) -> list[int]:
    return [
        row
        for row in program.columns[index].rows
        if program.row_keys[row][0] in ("slot", "tie", "self")
    ]


def _groups_of(c: Compiled, what: tuple[Any, ...]) -> set[int]:
    if what[0] in _OWN_GROUPS:
        return {what[1]}
    if what[0] == "both":
        return {int(c.group_of[what[1]]), int(c.group_of[what[2]])}
    if what[0] in _OWN_JOBS:
        return {int(c.group_of[what[1]])}
    return set()
