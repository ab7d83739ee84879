"""Smallest first: of the waiting jobs, those that ask for the fewest GPUs.

A rule of thumb of batch systems that keeps small jobs from waiting behind large gangs. No
preemption; the free GPUs that keep the promise for the least energy, alone; services, which ask for
replicas one by one, come first; idle servers are switched off.
"""

from __future__ import annotations

from gogh_core.simulation.board import Board, Entry, Rates, Why
from gogh_core.simulation.policies.common import Desk, Key, Queue
from gogh_core.simulation.policies.ways import thriftiest

__all__ = ["Smallest"]


def _size(entry: Entry) -> Key:
    return min(entry.job.gpu_counts), entry.arrived_s, entry.job.id


class Smallest:
    """Fewest GPUs first."""

    every_s: float | None = None
    on_events = True

    def __init__(self, rates: Rates, *, name: str = "smallest") -> None:
        self.name = name
        self._desk = Desk(rates, thriftiest)
        self._queue = Queue(_size)

    def act(self, board: Board, why: Why) -> None:
        """Place whoever fits, the smallest first."""
        self._desk.open(board)
        if self._desk.floor.any_free():
            self._desk.serve_first()
            self._desk.place_all(self._desk.line(self._queue))
        board.idle_off()
