"""Time budgets: a cycle has one, and so has each of its steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["Budget", "OverBudget"]

T = TypeVar("T")


class OverBudget(TimeoutError):
    """A step took longer than it may."""


class Budget:
    """What is left of a cycle's time, and where it went."""

    def __init__(
        self, total_s: float, step_s: float, report: Callable[[str, float], None] | None = None
    ) -> None:
        self._total_s = total_s
        self._step_s = step_s
        self._report = report or (lambda _name, _seconds: None)
        self._started = time.monotonic()
        self.seconds: dict[str, float] = {}
        self.cpu_s: dict[str, float] = {}

    @property
    def left_s(self) -> float:
        """Seconds a step may take that begins now."""
        return min(self._step_s, self._total_s - (time.monotonic() - self._started))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count the time of a step; `report` hears of its beginning (0 s) and of its end."""
        self._report(name, 0.0)
        began, began_cpu = time.monotonic(), time.process_time()
        try:
            yield
        finally:
            spent, cpu_s = time.monotonic() - began, time.process_time() - began_cpu
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            self.cpu_s[name] = self.cpu_s.get(name, 0.0) + cpu_s
            self._report(name, spent)

    def within(self, name: str, work: Callable[[], T]) -> T:
        """The work's result, or OverBudget when it takes longer than is left.

        Work that is late is left behind in its thread; what it writes goes through the store's own
        transactions, so the cycle can go on without it.
        """
        limit_s = self.left_s
        if limit_s <= 0:
            raise OverBudget(f"no time was left for {name}")
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                errors.append(error)

        thread = threading.Thread(target=run, name=f"gogh-{name}", daemon=True)
        thread.start()
        thread.join(limit_s)
        if errors:
            raise errors[0]
        if not results:
            raise OverBudget(f"{name} took longer than its {limit_s:.0f} s")
        return results[0]
