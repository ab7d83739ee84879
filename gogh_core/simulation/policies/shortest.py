"""Shortest job first, and shortest remaining time first with preemption.

The classic rules for the least mean completion time on one machine (Smith 1956; Schrage 1968), as
schedulers of GPU clusters use them for an upper bound: both know how many steps a job has left and,
given the true rates, how long those take. They are oracles. Length is seconds on the fastest GPUs
times their number, so that a gang counts for what it takes; a job is placed on the free GPUs that
keep its promise for the least energy. Simplified: a job is preempted only for one shorter by
half, only after it ran for a while, and only a few times, because every stop loses work. Services
come first and are never preempted; idle servers are switched off.
"""

from __future__ import annotations

from gogh_core.domain import Mode
from gogh_core.simulation.board import Board, Entry, Rates, Why
from gogh_core.simulation.policies.common import Desk, Key, Queue
from gogh_core.simulation.policies.preempting import Preemptor
from gogh_core.simulation.policies.ways import fastest, thriftiest

__all__ = ["Shortest", "ShortestRemaining"]

_SHORTER = 2.0
"""A job is preempted only for one that has this many times less left."""
_RAN_S = 300.0
_MOST_STOPS = 2


class Shortest:
    """Shortest first, without preemption."""

    every_s: float | None = None
    on_events = True

    def __init__(self, rates: Rates, *, name: str = "sjf") -> None:
        self.name = name
        self._desk = Desk(rates, thriftiest)
        self._queue = Queue(self._key)
        self._best: dict[str, tuple[float, int]] = {}

    def act(self, board: Board, why: Why) -> None:
        """Place whoever fits, the shortest first."""
        self._desk.open(board)
        if self._desk.floor.any_free():
            self._desk.serve_first()
            self._desk.place_all(self._desk.line(self._queue))
        board.idle_off()

    def _key(self, entry: Entry) -> Key:
        return self.length_s(entry), entry.arrived_s, entry.job.id

    def length_s(self, entry: Entry) -> float:
        """GPU-seconds that the job still takes where it runs fastest; 0 for services."""
        if entry.job.mode is Mode.SPREAD:
            return 0.0
        best = self._best.get(entry.job.id)
        if best is None:
            ways = self._desk.beliefs.ways(entry, fastest)
            best = (ways[0].rate, ways[0].gpus) if ways else (0.0, 1)
            self._best[entry.job.id] = best
        return self._desk.seconds_left(entry, best[0]) * best[1]


class ShortestRemaining(Shortest):
    """Shortest remaining first: a much shorter job takes the place of a longer one."""

    def __init__(self, rates: Rates, *, name: str = "srtf") -> None:
        super().__init__(rates, name=name)
        self._preemptor = Preemptor(self._desk, self.length_s, ran_s=_RAN_S, most_stops=_MOST_STOPS)

    def act(self, board: Board, why: Why) -> None:
        """Place the shortest first, if need be instead of longer ones."""
        self._desk.open(board)
        self._desk.serve_first()
        if self._preemptor.due(board):
            line = self._queue.waiting(board)
            self._preemptor.serve(line, self._limit)
        else:
            self._desk.place_all(self._desk.line(self._queue))
        board.idle_off()

    def _limit(self, entry: Entry) -> float:
        return self._queue.keys[entry.job.id][0] * _SHORTER
