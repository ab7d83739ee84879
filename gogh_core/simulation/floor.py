"""Who sits where: the index of the world's places, kept up to date seat by seat.

A spot is a set of GPUs of one server with the jobs that have them; two that share have the same
spot. What happens on a spot is worked out again only when it is touched. The floor also holds what
every server draws, so that the watts of the room are a sum of one figure for each server.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gogh_core import hardware
from gogh_core.domain import PowerState
from gogh_core.simulation.records import JobRecord, Place, ServerRecord
from gogh_core.simulation.truth import Run

__all__ = ["Floor", "Spot"]

_NONE: dict[tuple[int, ...], Spot] = {}


@dataclass(slots=True)
class Spot:
    """GPUs of a server, and the jobs that have them."""

    server: str
    gpus: tuple[int, ...]
    slowest: float
    """Speed of the slowest of its GPUs."""
    seats: list[tuple[JobRecord, Place]] = field(default_factory=list)
    """In order of arrival, whether they run yet or not."""
    running: list[JobRecord] = field(default_factory=list)
    run: Run | None = None

    def rate_of(self, record: JobRecord) -> float:
        """Steps per second of one of its jobs."""
        if self.run is None:
            return 0.0
        for index, job in enumerate(self.running):
            if job is record:
                return self.run.throughput[index] * self.slowest
        return 0.0


class Floor:
    """The spots of all servers and what the servers draw."""

    def __init__(self, servers: Mapping[str, ServerRecord]) -> None:
        self._spots: dict[str, dict[tuple[int, ...], Spot]] = {}
        self._watts = [0.0] * len(servers)
        self._gpu_watts = [0.0] * len(servers)
        self.on = 0
        """GPUs of servers that are on."""
        self.busy = 0
        """GPUs that jobs run on."""
        self.watts = 0.0
        self.gpu_watts = 0.0
        for number, record in enumerate(servers.values()):
            record.number, record.on, record.busy = number, 0, 0

    def sit(self, record: JobRecord, place: Place, slowest: float) -> None:
        """A job takes a place."""
        spots = self._spots.setdefault(place.server, {})
        spot = spots.get(place.gpus)
        if spot is None:
            spot = spots[place.gpus] = Spot(place.server, place.gpus, slowest)
        insort(spot.seats, (record, place), key=lambda seat: seat[0].number)

    def leave(self, record: JobRecord, place: Place) -> None:
        """A job gives a place up."""
        spot = self._spots[place.server][place.gpus]
        spot.seats = [seat for seat in spot.seats if seat[0] is not record]
        if not spot.seats:
            del self._spots[place.server][place.gpus]

    def spot(self, server: str, gpus: tuple[int, ...]) -> Spot | None:
        """The spot with exactly these GPUs, if anybody has it."""
        return self._spots.get(server, _NONE).get(gpus)

    def on_server(self, server: str) -> Iterator[Spot]:
        """Spots of a server that somebody has."""
        return iter(list(self._spots.get(server, _NONE).values()))

    def occupied(self, server: str) -> bool:
        """Whether any job sits there."""
        return bool(self._spots.get(server))

    def users(self, record: ServerRecord) -> list[list[str]]:
        """By GPU of a server, the jobs on it, in order of arrival."""
        found: list[list[JobRecord]] = [[] for _ in range(record.server.gpus)]
        for spot in self._spots.get(record.server.id, _NONE).values():
            for gpu in spot.gpus:
                found[gpu] += [job for job, _ in spot.seats]
        return [
            [job.id for job in sorted(jobs, key=lambda job: job.number)]
            if len(jobs) > 1
            else [job.id for job in jobs]
            for jobs in found
        ]

    def draw(self, record: ServerRecord) -> None:
        """Work out what a server and its GPUs draw from now on."""
        watts, on, busy = 0.0, 0, 0
        gpu_w = [0.0] * record.server.gpus
        if record.power is PowerState.OFF:
            watts = record.server.off_w
        elif record.power is not PowerState.DOWN:
            watts = record.server.base_w
        if record.power is PowerState.ON:
            idle_w = hardware.get(record.server.gpu_type).idle_w
            gpu_w = [0.0 if gpu in record.dead else idle_w for gpu in range(record.server.gpus)]
            on = record.server.gpus - len(record.dead)
            for spot in self._spots.get(record.server.id, _NONE).values():
                if spot.run is not None:
                    busy += len(spot.gpus)
                    for gpu in spot.gpus:
                        gpu_w[gpu] = spot.run.power_w
        record.gpu_w = gpu_w
        self._gpu_watts[record.number] = sum(gpu_w)
        self._watts[record.number] = watts + self._gpu_watts[record.number]
        self.on += on - record.on
        self.busy += busy - record.busy
        record.on, record.busy = on, busy

    def add_up(self) -> None:
        """Add the servers up after some of them were drawn anew."""
        self.watts, self.gpu_watts = sum(self._watts), sum(self._gpu_watts)
