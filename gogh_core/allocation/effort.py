"""The work a plan may take, counted in simplex iterations, columns and jobs instead of seconds.

What the search did decides when it ends, so that two runs of one problem give the same plan on a
busy machine and on a quiet one. One unit of work takes about one second on a quiet core; the
constants below were fitted to runs of `gogh bench allocation` and of the embedded cluster. The
clock is an emergency stop: where it strikes, the plan says so, because another run may differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = [
    "Effort",
    "iterations_for",
    "work_of_greedy",
    "work_of_leaf",
    "work_of_lp",
    "work_of_map",
    "work_of_mip",
    "work_of_pricing",
]

_OF_TIME_LIMIT = 0.5
"""Units of work for each second of a time limit: a machine twice as slow still ends by work."""


class _Meter:
    """What was done so far, and the clock; shared by all parts of one effort."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.done = 0.0
        self.struck = False


class Effort:
    """A limit of work, and what was done; `part` gives a lower limit on the same work."""

    def __init__(
        self,
        limit: float | None = None,
        *,
        time_limit_s: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = _OF_TIME_LIMIT * time_limit_s if limit is None else limit
        self._meter = _Meter(clock)
        self._ends_at = clock() + time_limit_s

    @property
    def done(self) -> float:
        """Units of work so far."""
        return self._meter.done

    @property
    def left(self) -> float:
        """Units of work until the limit."""
        return self.limit - self._meter.done

    @property
    def left_s(self) -> float:
        """Seconds until the emergency stop."""
        return self._ends_at - self._meter.clock()

    @property
    def clock_struck(self) -> bool:
        """Whether the emergency stop ended anything."""
        return self._meter.struck

    @property
    def spent(self) -> bool:
        """Whether the work is done; what the clock has to say is not asked."""
        return self.left <= 0

    def over(self) -> bool:
        """Whether to stop: the work is done, or the emergency stop is due."""
        return self.spent or self.is_late()

    def is_late(self, spare_s: float = 0.0) -> bool:
        """Whether the emergency stop is due, `spare_s` before its moment; remembers that it was."""
        if self.left_s <= spare_s:
            self._meter.struck = True
            return True
        return False

    def spend(self, work: float) -> None:
        """Count work that was done."""
        self._meter.done += work

    def stop_by(self, left_s: float) -> None:
        """Bring the emergency stop of this part nearer."""
        self._ends_at = min(self._ends_at, self._meter.clock() + left_s)

    def part(self, share: float = 1.0, *, least: float = 0.0, most: float = float("inf")) -> Effort:
        """A share of what is left, within bounds; what it takes is taken here too."""
        made = object.__new__(Effort)
        made.limit = self._meter.done + max(least, min(share * max(self.left, 0.0), most))
        made._meter, made._ends_at = self._meter, self._ends_at
        return made


def work_of_lp(iterations: int, rows: int, columns: int) -> float:
    """Of one solve of a linear program."""
    return 3e-4 + iterations * _iteration(rows) + 6e-7 * columns


def iterations_for(work: float, rows: int) -> int:
    """Simplex iterations for so much work, at least one."""
    return max(1, min(int(work / _iteration(rows)), 2**31 - 1))


def _iteration(rows: int) -> float:
    return 7e-6 + 7e-9 * rows


def work_of_pricing(columns: int, options: int, groups: int, kinds: int, *, spread: bool) -> float:
    """Of pricing all options once, and of what is read from the linear program for it."""
    if spread:
        return 3e-3 + 1.5e-6 * options + 3e-6 * groups * kinds + 2e-6 * columns
    return 9e-4 + 6e-8 * options * kinds + 2e-6 * columns


def work_of_leaf(jobs: int, kinds: int) -> float:
    """Of the verifier's bound for one leaf."""
    return 5e-3 + 5e-6 * jobs * kinds


def work_of_map(jobs: int) -> float:
    """Of putting counts onto servers once."""
    return 1.3e-4 + 9e-6 * jobs


def work_of_mip(columns: int, solver: str) -> float:
    """Of one integer program."""
    if solver == "highs":
        return 5e-3 + min(3e-7 * columns, 5e-4) * columns
    return 5e-3 + 6e-8 * columns**2


def work_of_greedy(options: int) -> float:
    """Of one job by the greedy rule."""
    return 3e-5 + 6e-10 * options
