"""Least attained service: Tiresias' discretised two-dimensional LAS, with preemption by level.

Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning" (NSDI 2019). A job's
service is GPUs times seconds. It begins on the top level and sinks a level at each threshold; on a
level the first to come goes first; a job on a higher level takes the place of one on a lower level.
A job that waited long for what it ran is lifted to the top again. The thresholds are those of the
simulator that the authors published. Simplified: no profile of placement sensitivity (a gang always
sits on one server), and jobs below the top level run on until somebody above needs their GPUs. It
needs no run times. Services come first and are never preempted; idle servers are switched off.
"""

from __future__ import annotations

from gogh_core.simulation.board import Board, Entry, Rates, Why
from gogh_core.simulation.policies.common import Desk, Key, Queue
from gogh_core.simulation.policies.preempting import Preemptor
from gogh_core.simulation.policies.ways import thriftiest

__all__ = ["LeastAttained"]

_LEVELS_GPU_S = (3250.0, 7200.0)
_LIFT = 8.0
"""A job that waited this many times longer than it ran is lifted to the top level."""
_RAN_S = 120.0
_MOST_STOPS = 6
_SCALE_GPU_S = 1e9
"""More service than any job gets: ranks sort by level, then by service."""


class LeastAttained:
    """Jobs with little service before jobs with much, in levels."""

    on_events = True

    def __init__(self, rates: Rates, *, every_s: float, name: str = "las") -> None:
        self.name = name
        self.every_s: float | None = every_s
        self._desk = Desk(rates, thriftiest)
        self._queue = Queue(self._key)
        self._preemptor = Preemptor(self._desk, self._rank, ran_s=_RAN_S, most_stops=_MOST_STOPS)

    def act(self, board: Board, why: Why) -> None:
        """Place from the top level down, if need be instead of jobs on lower levels."""
        self._desk.open(board)
        self._desk.serve_first()
        if why == "window":
            self._queue.forget()  # some have waited long enough to be lifted
        if self._preemptor.due(board):
            line = self._queue.waiting(board)
            self._preemptor.serve(line, self._limit)
        else:
            self._desk.place_all(self._desk.line(self._queue))
        board.idle_off()

    def _key(self, entry: Entry) -> Key:
        return self.level(entry), entry.arrived_s, entry.job.id

    def level(self, entry: Entry) -> int:
        """0 is the top."""
        now_s = self._desk.board.now_s
        service, waited_s = entry.attained_at(now_s), entry.waited_at(now_s)
        if not entry.slots and service > 0 and waited_s > _LIFT * service / _gpus(entry):
            return 0
        return sum(service >= limit for limit in _LEVELS_GPU_S)

    def _limit(self, entry: Entry) -> float:
        """Jobs on lower levels rank above this."""
        return (self._queue.keys[entry.job.id][0] + 1) * _SCALE_GPU_S - 1

    def _rank(self, entry: Entry) -> float:
        """By level, and on a level the most service is the worst."""
        service = entry.attained_at(self._desk.board.now_s)
        return self.level(entry) * _SCALE_GPU_S + service


def _gpus(entry: Entry) -> int:
    return entry.gpus or min(entry.job.gpu_counts)
