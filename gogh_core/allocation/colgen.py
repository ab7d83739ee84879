"""Column generation over the full problem, the dive on server counts, the residual MIP.

`Search` holds one master in GLPK. The LP is nearly integral: once the numbers of servers in use
are whole, a few dozen groups are left to decide, and those go to the solver as one small MIP.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.compiled import Compiled
from gogh_core.allocation.lp import Glpk, LpResult
from gogh_core.allocation.master import Master
from gogh_core.allocation.mip import Part, solve_mip
from gogh_core.allocation.pricing import Pricer, Prices
from gogh_core.allocation.verify_bound import Leaves
from gogh_core.allocation.ways import Way
from gogh_core.errors import SolverFailed

__all__ = ["Box", "Search"]

Floats = npt.NDArray[np.float64]
WHOLE = 1e-6
SMALL = 150
"""Up to so many jobs branching is quick, and MIPs get little time."""
_MIP_S = 6.0
"""Seconds for one MIP: what it has not found by then is found faster by fixing more."""
WIDE = 3000
"""Up to so many groups a MIP may have all of them, and the gap is proven by branching."""
_NEAR = 0.07
"""Of the mean cost of a job: columns that cost no more than that on top are near."""
_AGAIN = 3
"""Times a MIP is solved when its answer makes a job its own partner, which is forbidden then."""
_DEAR = 5e-4
"""Share of the cost above which rounding a number of servers is tried the other way too."""
_OWN_GROUPS = ("alone", "side", "wait", "bundle")
_OWN_JOBS = ("stay", "host", "both", "keep")

Box = dict[tuple[str, int], tuple[int, int]]
"""Bounds of a branch: ("servers" or "gpus", kind) to (low, high)."""
Cuts = tuple[tuple[str, int, int, bool], ...]
"""("gpus", "option" or "way"; kind, row or way; number; at most?) in the order of the branch."""


class Search:
    """One master program and what is known of it."""

    def __init__(
        self, compiled: Compiled, *, solver: str, deadline: float, notes: list[str]
    ) -> None:
        self.c = compiled
        self.solver = solver
        self.deadline = deadline
        self.notes = notes
        self.master = Master(compiled)
        self.pricer = Pricer(self.master, self.out_of_time)
        self.pricer.first_columns()
        self.lp = Glpk(self.master.program)
        self.lp.sync()
        self.lp.start_from(self.master.wait_columns)
        self.rounds = 0
        self.leaf_s = 0.0
        """Seconds the verifier takes for one leaf, lately."""
        self.solver_failed = False

    @cached_property
    def leaves(self) -> Leaves:
        """The verifier's own evaluation of single leaves."""
        return Leaves(self.c.problem, "server" if self.c.by_server else "likeness")

    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return self.left_s() <= 0

    # --- the LP ----------------------------------------------------------------------------

    def generate(
        self, tolerance: float, rounds: int = 200, *, lazy: bool = False
    ) -> tuple[LpResult, Prices] | None:
        """Solve, price, add, until the LP is within the tolerance of the full one.

        `lazy` reads the values of columns at the end only: then what is cut short is lost.
        """
        best: tuple[LpResult, Prices] | None = None
        first = True
        for _ in range(rounds):
            left = max(0.05, self.left_s())
            result = self.lp.solve(dual=first and self.rounds > 0, time_s=left, light=True)
            if not result.good and first and self.rounds > 0:
                result = self.lp.solve(time_s=max(0.05, self.left_s()), light=True)
            first = False
            if not result.good:
                return None if lazy else best
            self.rounds += 1
            if not lazy:
                self.lp.fill(result)
            prices = Prices.of(self.master, result.duals)
            added = self.price(prices)
            self.lp.sync()
            best = (result, prices)
            scale = abs(result.cost + self.c.fixed_w)
            if self.out_of_time():
                break
            if not added or -self.pricer.worst <= tolerance * scale:
                if lazy:
                    self.lp.fill(result)
                if not self.forbid_selves(result.x):
                    break
                first = True
        if lazy and best is not None and not len(best[0].x):
            self.lp.fill(best[0])
        return best

    def forbid_selves(self, x: Floats) -> int:
        """Rows against jobs that are their own partners in the LP; the count of new ones."""
        master, c = self.master, self.c
        new: list[tuple[int, int, int]] = []
        for (row, realm), sides in master.slot_sides.items():
            users = master.slot_users.get((row, realm), {})
            pairs = sum(n * x[i] for i, n in users.items() if i < len(x))
            for group, columns in sides.items():
                single = c.groups[group].count == 1
                known = group in master.self_rows.get((row, realm), {})
                used = sum(n * x[i] for i, n in columns.items() if i < len(x))
                if single and not known and used > pairs + WHOLE:
                    new.append((row, realm, group))
        for row, realm, group in new:
            own = master.forbid_itself(row, realm, group)
            self.lp.sync()
            entries = {i: float(n) for i, n in master.slot_sides[row, realm][group].items()}
            users = master.slot_users.get((row, realm), {})
            entries |= {i: -float(n) for i, n in users.items()}
            self.lp.set_matrix_row(own, entries)
        return len(new)

    def price(self, prices: Prices) -> int:
        """Add what is worth adding, gangs and spread jobs."""
        added = self.pricer.add_columns(prices)
        if self.pricer.spread:
            from gogh_core.allocation.spread import add_bundles

            added += add_bundles(self.pricer, prices)
        return added

    def set_box(self, box: Box, before: Box | None = None) -> None:
        """Bounds of a branch; what `before` bounded and `box` does not is free again."""
        c = self.c
        for key in before or {}:
            if key not in box:
                high = float("inf")
                if key[0] == "servers":
                    high = float(len(c.kinds[key[1]].servers))
                self._bound(key, 0.0, high)
        for key, (low, high) in box.items():
            self._bound(key, float(low), float(high))

    def _bound(self, key: tuple[str, int], low: float, high: float) -> None:
        if key[0] == "option":
            index = self._counted(key[1])
        elif key[0] == "way":
            index = self.master.way_rows[self.master.ways[key[1]]][2]
        else:
            columns = self.master.on_columns if key[0] == "servers" else self.master.taken_columns
            index = columns[key[1]]
        self.master.program.columns[index].lower = low
        self.master.program.columns[index].upper = high
        self.lp.set_column(index, low, high)

    def _counted(self, row: int) -> int:
        """The column that counts an option's uses, made where it is new."""
        master = self.master
        if row in master.count_rows:
            return master.count_rows[row][1]
        index, column = master.count_option(row)
        self.lp.sync()
        self._enter(index)
        return column

    def way(self, group: int, way: Way) -> int:
        """The number of a way that is branched on, made where it is new."""
        master = self.master
        number = master.count_way(group, way)
        if len(master.program.row_keys) > self.lp.rows:
            self.lp.sync()
            self._enter(master.way_rows[group, way][1])
        return number

    def column_of(self, what: tuple[Any, ...]) -> int:
        """The column that stands for something; the newest are looked at first."""
        columns = self.master.program.columns
        return next(i for i in range(len(columns) - 1, -1, -1) if columns[i].what == what)

    def _enter(self, row: int) -> None:
        """A new row of old columns."""
        entries = {
            at: value
            for at, column in enumerate(self.master.program.columns)
            for mine, value in zip(column.rows, column.values, strict=True)
            if mine == row
        }
        self.lp.set_matrix_row(row, entries)

    def leaf(self, prices: Prices, cuts: Cuts = ()) -> dict[str, Any]:
        """The certificate of one leaf: the prices, by job and by kind, and of its cuts."""
        c = self.c
        values = np.zeros(len(c.cls))
        for group in c.groups:
            values[group.jobs] = prices.groups[group.index]
        capacity = np.maximum(np.minimum(prices.room, prices.gpus), 0.0)
        bounded = {cut[1] for cut in cuts if cut[0] == "gpus"}
        for k in bounded:
            capacity[k] = max(0.0, float(prices.room[k]))
        raw: dict[str, Any] = {
            "jobs": _rounded(values),
            "capacity": _rounded(capacity),
            "whole": _rounded(np.maximum(prices.servers, 0)),
        }
        if cuts:
            raw["cuts"] = _cut_prices(prices, cuts, self.master.ways)
        if len(c.cells):
            raw["cells"] = _rounded(np.maximum(prices.cells, 0))
            raw["occupied"] = _rounded(np.maximum(prices.occupied, 0))
        if len(c.owners):
            raw["quotas"] = {
                owner: max(0.0, float(prices.quotas[at])) for at, owner in enumerate(c.owners)
            }
        if prices.moves > 0:
            raw["moves"] = prices.moves
        if prices.power > 0:
            raw["cap"] = prices.power
        if self.pricer.spread:
            from gogh_core.allocation.spread import own_prices, side_prices, tie_prices, worths

            raw["worth"] = _rounded(worths(self.pricer, prices))
            raw["sides"], raw["ties"] = side_prices(c, prices), tie_prices(prices)
            raw["own"] = own_prices(c, prices)
        return raw

    # --- whole numbers ---------------------------------------------------------------------

    def dive(self, result: LpResult, box: Box, tolerance: float) -> tuple[LpResult, Box]:
        """Fix the numbers of servers in use one after the other, nearest to whole first."""
        fixed = dict(box)
        for _ in range(2 * len(self.c.kinds)):
            x = result.x
            off = [
                (abs(x[i] - round(x[i])), k)
                for k, i in enumerate(self.master.on_columns)
                if abs(x[i] - round(x[i])) > WHOLE
            ]
            if not off or self.out_of_time():
                break
            chosen = [k for _, k in sorted(off)[: max(1, len(off) // 8)]]
            whole = {k: round(x[self.master.on_columns[k]]) for k in chosen}
            found = self._fixed_at(fixed, whole, tolerance)
            if found is None or found[0].cost > result.cost + _DEAR * abs(result.cost):
                # Rounded down too far; one server more may cost less.
                more = {k: int(np.ceil(x[self.master.on_columns[k]])) for k in chosen}
                other = self._fixed_at(fixed, more, tolerance) if more != whole else None
                if other is not None and (found is None or other[0].cost < found[0].cost):
                    found, whole = other, more
            if found is None:
                break
            fixed.update({("servers", k): (n, n) for k, n in whole.items()})
            result = found[0]
        self.set_box(box, before={("servers", k): (0, 0) for k in range(len(self.c.kinds))})
        return result, fixed

    def _fixed_at(
        self, fixed: Box, servers: dict[int, int], tolerance: float
    ) -> tuple[LpResult, Prices] | None:
        """The LP with these numbers of servers in use as well, or None if the jobs do not fit."""
        self.set_box({**fixed, **{("servers", k): (n, n) for k, n in servers.items()}})
        return self.generate(tolerance, rounds=4)

    def finish(
        self, result: LpResult, fixed: Box, *, slack_w: float, wide: bool = False
    ) -> dict[int, int]:
        """Whole counts: what is whole stays, the rest is one MIP; else rounded down.

        The MIP may stop `slack_w` above its bound. `wide` frees every group, but only for columns
        that cost little more than the best ones.
        """
        x = result.x
        rounded = {i: int(np.floor(v + WHOLE)) for i, v in enumerate(x) if v >= 1 - WHOLE}
        groups = self._widened(result, self._fractional(x))
        for _ in range(_AGAIN):
            part = self._near(result, fixed) if wide else self._part(x, fixed, groups)
            found = None if part is None else self._solved(part, x, slack_w)
            if part is None or found is None:
                return rounded
            inside = set(part.columns)
            counts = {i: n for i, n in rounded.items() if i not in inside}
            counts |= {i: round(value) for i, value in found.items() if round(value) > 0}
            values = np.zeros(len(self.master.program.columns))
            values[list(counts)] = list(counts.values())
            if not self.forbid_selves(values):
                break
        return counts

    def _solved(self, part: Part, x: Floats, slack_w: float) -> dict[int, float] | None:
        """The MIP's answer, or None with a note."""
        seconds = min(self.left_s() - 0.5, _MIP_S)
        if len(self.c.cls) <= SMALL:
            # Branching needs the time more.
            seconds = min(seconds, max(1.0, 0.05 * self.left_s()))
        if self.solver_failed or seconds < 1.0:
            return None
        columns = self.master.program.columns
        cost_w = abs(sum(columns[i].cost * x[i] for i in part.columns if i < len(x)))
        started = time.monotonic()
        try:
            gap = min(slack_w / max(cost_w, 1e-9), 0.5)
            outcome = solve_mip(part, solver=self.solver, gap=gap, time_s=seconds)
        except SolverFailed as error:
            self.solver_failed = True
            self.notes.append(f"{error.what.splitlines()[0][:200]}; rounded without it")
            return None
        if not outcome.complete and time.monotonic() - started >= int(seconds):
            # Where the clock stopped it another run may find something else.
            self.notes.append(f"{self.solver} was stopped after {int(seconds)} s")
        return outcome.found

    def _near(self, result: LpResult, fixed: Box) -> Part:
        """All columns in use, and those that cost little more at the present prices."""
        near_w = _NEAR * abs(result.cost + self.c.fixed_w) / max(1, len(self.c.cls))
        always = ("on", "on_server", "taken", "count", "way", "over")
        chosen = [
            index
            for index, (x, more_w) in enumerate(zip(result.x, result.reduced, strict=True))
            if x > WHOLE or more_w <= near_w or self.master.program.columns[index].what[0] in always
        ]
        bounds = {
            self.master.on_columns[k]: (max(0.0, low - 1.0), high + 1.0)
            for (what, k), (low, high) in fixed.items()
            if what == "servers"
        }
        return Part(self.master.program, chosen, {}, bounds)

    def waits_in_parts(self, result: LpResult) -> bool:
        """Whether the LP leaves a part of a job waiting."""
        waiting = float(result.x[self.master.wait_columns].sum())
        return abs(waiting - round(waiting)) > WHOLE

    def _fractional(self, x: Floats) -> set[int]:
        """Groups that are not decided by whole numbers."""
        c, columns = self.c, self.master.program.columns
        groups: set[int] = set()
        slots: set[int] = set()
        for index in np.flatnonzero(np.abs(x - np.round(x)) > WHOLE).tolist():
            groups |= _groups_of(c, columns[index].what)
            if columns[index].what[0] in ("pair", "single", "tie"):
                slots.update(_slot_rows(self.master.program, int(index)))
        # A class paired with itself needs an even number: whoever is on such a side is free too.
        for index in np.flatnonzero(x > WHOLE).tolist():
            if slots.intersection(columns[index].rows):
                groups |= _groups_of(c, columns[index].what)
        return groups

    def _widened(self, result: LpResult, groups: set[int], near_w: float = 40.0) -> set[int]:
        """Also who shares, or nearly shares, a side with them: pairs only change together."""
        c, program = self.c, self.master.program
        if not groups or len(groups) > 150:
            return groups
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
        return wide if len(wide) <= 150 else groups

    def _part(self, x: Floats, fixed: Box, groups: set[int]) -> Part | None:
        """The columns of these groups and the pairs they touch; everything else is as in x."""
        c, program = self.c, self.master.program
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
                bounds[self.master.on_columns[k]] = (float(low), float(high + 1))
        return Part(program, sorted(chosen_set), settled, bounds)


def _cut_prices(prices: Prices, cuts: Cuts, ways: list[tuple[int, Way]]) -> list[float]:
    """The tightest cut on each side of a kind carries what GPUs cost beyond their room."""
    result = [0.0] * len(cuts)
    for what, k in {cut[:2] for cut in cuts}:
        if what == "gpus":
            extra = float(prices.gpus[k]) - max(0.0, float(prices.room[k]))
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


def _rounded(values: Floats) -> list[float]:
    """Prices are as good with nine digits, and half as long in the file."""
    return [float(f"{value:.9g}") for value in values]
