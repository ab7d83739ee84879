"""What a policy believes: the ways in which a job runs, and which of them keep its promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gogh_core import hardware
from gogh_core.domain import Job, Mode
from gogh_core.simulation.board import Board, Entry, Guess, Rates

__all__ = ["Beliefs", "Preference", "Way", "fastest", "may_share", "newest", "thriftiest"]

REFRESH_S = 300.0
"""What was looked up is looked up again after this time: rates that are learned change."""
HEADROOM = 1.5
"""A service must reach this much more than it is asked for now with all the GPUs it may have."""


@dataclass(frozen=True, slots=True)
class Way:
    """A number of GPUs of a type, and what a job is believed to reach on them alone."""

    gpu_type: str
    gpus: int
    rate: float
    power_w: float
    """Of each GPU."""


Preference = Callable[[Way], tuple[float, ...]]
"""Ways in order of preference: the lowest first."""


def newest(way: Way) -> tuple[float, ...]:
    """The newest GPU type, then the fewest GPUs."""
    return (-hardware.get(way.gpu_type).year, way.gpus)


def fastest(way: Way) -> tuple[float, ...]:
    """The highest rate for each GPU, then the fewest GPUs."""
    return (-way.rate / way.gpus, way.gpus)


def thriftiest(way: Way) -> tuple[float, ...]:
    """The least energy for a step, the server's own draw aside."""
    return (way.power_w * way.gpus / way.rate, way.gpus)


def may_share(one: Job, other: Job) -> bool:
    """Whether both owners allow these two on one GPU."""
    if one.shareable is False or other.shareable is False:
        return False
    return "owner" not in (one.shareable, other.shareable) or one.owner == other.owner


class Beliefs:
    """Rates, remembered for a while, and the ways in which jobs keep their promises."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._runs: dict[tuple[str, int, tuple[str, ...]], Guess | None] = {}
        self._ways: dict[tuple[object, ...], list[Way]] = {}
        self._capacity: dict[str, int] = {}
        self._asked_s = 0.0

    def refresh(self, board: Board) -> bool:
        """Forget what is too old; whether that was so."""
        if not self._capacity:
            for machine in board.machines.values():
                kind = machine.server.gpu_type
                self._capacity[kind] = self._capacity.get(kind, 0) + machine.server.gpus
        elif board.now_s - self._asked_s < REFRESH_S:
            return False
        self._runs.clear()
        self._ways.clear()
        self._asked_s = board.now_s
        return True

    def run(self, gpu_type: str, gpus: int, classes: tuple[str, ...]) -> Guess | None:
        """What these classes reach together, and what each GPU draws."""
        key = (gpu_type, gpus, classes)
        if key not in self._runs:
            self._runs[key] = self._rates.run(gpu_type, gpus, classes)
        return self._runs[key]

    def all_ways(self, job: Job, prefer: Preference) -> list[Way]:
        """Every way in which the job runs on this cluster, slow or not; services by replica."""
        counts = (1,) if job.mode is Mode.SPREAD else job.gpu_counts
        key = (job.job_class, counts, prefer)
        if key not in self._ways:
            found = [
                Way(kind, count, guess.throughput[0], guess.power_w)
                for kind, capacity in self._capacity.items()
                for count in sorted(counts)
                if count <= capacity
                and (guess := self.run(kind, count, (job.job_class,))) is not None
                and guess.throughput[0] > 0
            ]
            self._ways[key] = sorted(found, key=prefer)
        return self._ways[key]

    def ways(self, entry: Entry, prefer: Preference, margin: float = 1.0) -> list[Way]:
        """Those in which it keeps its promise; if none does, all of them, the fastest first."""
        found = self.all_ways(entry.job, prefer)
        need = self.need(entry) * margin
        kept = [way for way in found if way.rate >= need]
        return kept or sorted(found, key=lambda way: -way.rate)

    @staticmethod
    def need(entry: Entry) -> float:
        """The rate that one place has to reach; of a service, as one of the most it may have."""
        if entry.job.mode is Mode.SPREAD:
            asked = max(entry.job.required_throughput, entry.required)
            return HEADROOM * asked / entry.job.max_gpus
        return entry.job.required_throughput
