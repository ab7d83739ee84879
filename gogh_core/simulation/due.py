"""What will happen by itself and when: a heap of times, with entries that may have become stale.

An entry is a time and the name of a job or server. Nothing is taken off the heap when a job is
stopped or changes its speed: whether an entry still counts is asked of the record it names, when
its time has come or when the next time is asked for.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

__all__ = ["Due"]

_SPARE = 1000


class Due:
    """Times with names; `holds` says whether an entry still counts."""

    def __init__(self, holds: Callable[[float, str], bool]) -> None:
        self._heap: list[tuple[float, str]] = []
        self._holds = holds
        self._most = _SPARE

    def add(self, at_s: float, name: str) -> None:
        """Something will happen to it then."""
        heapq.heappush(self._heap, (at_s, name))
        if len(self._heap) > self._most:
            self._heap = [entry for entry in self._heap if self._holds(*entry)]
            heapq.heapify(self._heap)
            self._most = 2 * len(self._heap) + _SPARE

    def next_s(self) -> float | None:
        """The earliest time that still counts."""
        heap = self._heap
        while heap and not self._holds(*heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take(self, until_s: float) -> list[str]:
        """Names whose time has come, each once, earliest first."""
        found: dict[str, None] = {}
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            at_s, name = heapq.heappop(heap)
            if self._holds(at_s, name):
                found[name] = None
        return list(found)

    def fill(self, entries: Iterable[tuple[float, str]]) -> None:
        """Begin anew with these."""
        self._heap = list(entries)
        heapq.heapify(self._heap)
        self._most = 2 * len(self._heap) + _SPARE
