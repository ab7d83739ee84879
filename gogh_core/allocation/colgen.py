"""Column generation over the full problem: `Search` holds one master in HiGHS and its bounds.

`rounding.py` makes whole numbers of its solutions, `certificate.py` proofs of its prices.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.compiled import Compiled
from gogh_core.allocation.effort import Effort, work_of_pricing
from gogh_core.allocation.lp import LpResult
from gogh_core.allocation.lp_outside import open_lp
from gogh_core.allocation.master import Master
from gogh_core.allocation.prices import Prices
from gogh_core.allocation.pricing import Pricer
from gogh_core.allocation.start import first_basis
from gogh_core.allocation.verify_bound import Leaves
from gogh_core.allocation.ways import Way

__all__ = ["Box", "Search"]

Floats = npt.NDArray[np.float64]
WHOLE = 1e-6
_PATIENCE = 6
_NEARLY = 10.0
"""How many times farther an LP may be from its end when it has stopped moving."""

Box = dict[tuple[str, int], tuple[int, int]]
"""Bounds of a branch: ("servers" or "gpus", kind) to (low, high)."""
Cuts = tuple[tuple[str, int, int, bool], ...]
"""("gpus", "option" or "way"; kind, row or way; number; at most?) in the order of the branch."""


def _cut_short(best: tuple[LpResult, Prices] | None) -> tuple[LpResult, Prices] | None:
    """What there was before a limit stopped the LP; of its columns only those in use are near."""
    if best is not None:
        best[0].reduced = np.where(best[0].x > WHOLE, 0.0, np.inf)
    return best


class Search:
    """One master program and what is known of it."""

    def __init__(
        self, compiled: Compiled, *, solver: str, effort: Effort, notes: list[str]
    ) -> None:
        self.c = compiled
        self.solver = solver
        self.effort = effort
        self.notes = notes
        self.master = Master(compiled)
        self.pricer = Pricer(self.master, self.out_of_work)
        self.pricer.first_columns()
        if self.master.power_row >= 0 and self.master.program.row_high[self.master.power_row] < 0:
            self.master.relax_cap()
        self.lp = open_lp(self.master.program)
        self.lp.sync()
        self.lp.start_from(first_basis(self.master))
        self.rounds = 0
        self.leaf_s = 0.0
        """Seconds the verifier takes for one leaf, lately: they are left before the last stop."""
        self.solver_failed = False

    @cached_property
    def leaves(self) -> Leaves:
        """The verifier's own evaluation of single leaves."""
        return Leaves(self.c.problem, "server" if self.c.by_server else "likeness")

    def out_of_work(self) -> bool:
        """Whether the work is done, or the clock stops it."""
        return self.effort.over()

    # --- the LP ----------------------------------------------------------------------------

    def generate(
        self, tolerance: float, rounds: int = 200, *, lazy: bool = False
    ) -> tuple[LpResult, Prices] | None:
        """Solve, price, add, until the LP is within the tolerance of the full one.

        `lazy` reads the values of columns at the end only: then what is cut short is lost.
        After new bounds or rows the dual simplex is quick as long as no column has come since that
        is worth taking: such columns follow in the next round.
        """
        best: tuple[LpResult, Prices] | None = None
        first = True
        costs: list[float] = []
        for _ in range(rounds):
            dual = first and self.rounds > 0
            result = self._solve(dual)
            if not result.good and dual:
                result = self._solve(False)
            first = False
            if not result.good:
                return None if lazy else _cut_short(best)
            self.rounds += 1
            if not lazy:
                self.lp.fill_values(result)
            prices = Prices.of(self.master, result.duals)
            left_out = self.lp.cols < len(self.master.program.columns)
            added = self.price(prices)
            best = (result, prices)
            scale = abs(result.cost + self.c.fixed_w)
            if not added and -self.pricer.worst > tolerance * scale:
                added = self._price_unsettled(result)
            if self.out_of_work():
                break
            costs.append(result.cost)
            near = tolerance * scale * (_NEARLY if self._stuck(costs, tolerance * scale) else 1.0)
            if not (added or left_out) or -self.pricer.worst <= near:
                self.lp.fill(result)
                if not self.forbid_selves(result.x):
                    break
                first = True
        if best is not None and not len(best[0].reduced):
            self.lp.fill(best[0])
        if best is not None:
            self.pad(best[0])
        return best

    def relax(self, box: Box) -> bool:
        """Slack where the LP of a branch has no solution; False if all there is was there."""
        new = self.master.relax_cap()
        for what, kind in box:
            if what == "gpus":
                new |= self.master.relax_gpus(kind)
        self.lp.sync()
        return new

    def _solve(self, dual: bool) -> LpResult:
        """The LP as it is now; only the primal simplex takes new columns in.

        With spread jobs new columns are what gives new sides of options a price, which a proof
        cannot do without.
        """
        if dual and not self.pricer.spread:
            self.lp.sync_rows()
        else:
            self.lp.sync()
        return self.lp.solve(self.effort, dual=dual, light=True)

    def pad(self, result: LpResult) -> None:
        """Columns that the LP does not know yet are at 0 and cost nothing on top."""
        new = len(self.master.program.columns)
        result.x = np.pad(result.x, (0, new - len(result.x)))
        result.reduced = np.pad(result.reduced, (0, new - len(result.reduced)))

    def _stuck(self, costs: list[float], least: float) -> bool:
        """Whether the LP has not moved for some rounds, as it does near its end with spread jobs.

        What they would pay for a side is estimated from above, and never becomes nothing.
        """
        if not self.pricer.spread or len(costs) <= _PATIENCE:
            return False
        return costs[-1 - _PATIENCE] - costs[-1] < least

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
            entries = {i: float(n) for i, n in master.slot_sides[row, realm][group].items()}
            users = master.slot_users.get((row, realm), {})
            entries |= {i: -float(n) for i, n in users.items()}
            self.lp.enter_row(own, entries)
        return len(new)

    def price(self, prices: Prices) -> int:
        """Add what is worth adding, gangs and spread jobs."""
        c = self.c
        self.effort.spend(
            work_of_pricing(
                len(self.master.program.columns),
                len(c.net_w),
                len(c.groups),
                len(c.kinds),
                spread=bool(self.pricer.spread),
            )
        )
        if self.pricer.spread:
            from gogh_core.allocation.sides import settle

            settle(self.pricer, prices)
        return self._add_columns(prices)

    def _price_unsettled(self, result: LpResult) -> int:
        """At the LP's own prices, where those that were settled hide what is worth adding."""
        if not self.pricer.spread:
            return 0
        worst = self.pricer.worst
        added = self._add_columns(Prices.of(self.master, result.duals))
        self.pricer.worst = worst
        return added

    def _add_columns(self, prices: Prices) -> int:
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
        self._enter(index)
        return column

    def way(self, group: int, way: Way) -> int:
        """The number of a way that is branched on, made where it is new."""
        master = self.master
        number = master.count_way(group, way)
        if len(master.program.row_keys) > self.lp.rows:
            self._enter(master.way_rows[group, way][1])
        return number

    def column_of(self, what: tuple[Any, ...]) -> int:
        """The column that stands for something."""
        return self.master.program.known[what]

    def _enter(self, row: int) -> None:
        """A new row of old columns, and the new columns."""
        entries = {
            at: value
            for at, column in enumerate(self.master.program.columns)
            for mine, value in zip(column.rows, column.values, strict=True)
            if mine == row
        }
        self.lp.enter_row(row, entries)
        self.lp.sync()
