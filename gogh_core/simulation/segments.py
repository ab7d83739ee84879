"""Telemetry of a run for whoever learns from it: which job ran where, beside which, how fast.

A segment is open while a job's place, partner, rate and watts stay the same. It is told when one of
them changes, and at each window, when all that are open are told and begun again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from gogh_core.domain import Mode
from gogh_core.simulation.floor import Spot
from gogh_core.simulation.rates import Key
from gogh_core.simulation.records import JobRecord
from gogh_core.simulation.world import World

__all__ = ["Observer", "Segment", "Watch"]


@dataclass(frozen=True, slots=True)
class Segment:
    """One job at one place beside one partner (or none) for a stretch of time, as measured."""

    job: str
    job_class: str
    owner: str
    gpu_type: str
    gpus: int
    partner_class: str | None
    throughput: float
    power_w: float
    """Of each GPU."""
    begun_s: float
    ended_s: float
    feasible: bool = True
    """False: memory did not suffice, and the job was thrown out at that moment."""


Observer = Callable[[Segment], None]
"""Is told of every segment when it ends, and of those that go on at each window."""


class Watch:
    """The open segments, by job and place."""

    def __init__(self, world: World, observer: Observer) -> None:
        self._world = world
        self._observer = observer
        self._open: dict[str, dict[Key, Segment]] = {}

    def changed(self, jobs: Iterable[JobRecord]) -> None:
        """Close segments of these jobs that are over, and open what began."""
        for record in jobs:
            before = self._open.get(record.id, {})
            after = self._now(record)
            for key, segment in before.items():
                now = after.get(key)
                if now is not None and _same(segment, now):
                    after[key] = segment
                else:
                    self._tell(segment)
            if after:
                self._open[record.id] = after
            else:
                self._open.pop(record.id, None)

    def cut(self) -> None:
        """Tell of everything that is open, and begin it again."""
        now_s = self._world.now_s
        for open_ in self._open.values():
            for key, segment in open_.items():
                self._tell(segment)
                open_[key] = replace(segment, begun_s=now_s, ended_s=now_s)

    def evicted(self, record: JobRecord, spot: Spot, partner: JobRecord | None) -> None:
        """Tell that a job does not run there beside its partner, or alone."""
        other = partner.demand.job.job_class if partner else None
        self._observer(self._segment(record, spot, other, 0.0, 0.0, feasible=False))

    def _now(self, record: JobRecord) -> dict[Key, Segment]:
        found: dict[Key, Segment] = {}
        if not record.rates:
            return found
        gang = record.demand.job.mode is Mode.GANG
        for index, place in enumerate(record.places):
            spot = self._world.spot(place)
            if spot.run is None or record not in spot.running:
                continue
            others = [job for job in spot.running if job is not record]
            other = others[0].demand.job.job_class if others else None
            rate = record.rates[0] if gang else record.rates[index]
            found[place.server, place.gpus] = self._segment(
                record, spot, other, rate, spot.run.power_w
            )
        return found

    def _segment(
        self,
        record: JobRecord,
        spot: Spot,
        partner_class: str | None,
        rate: float,
        power_w: float,
        *,
        feasible: bool = True,
    ) -> Segment:
        job, now_s = record.demand.job, self._world.now_s
        gang = job.mode is Mode.GANG
        return Segment(
            record.id,
            job.job_class,
            job.owner,
            self._world.servers[spot.server].server.gpu_type,
            sum(len(place.gpus) for place in record.places) if gang else len(spot.gpus),
            partner_class,
            rate,
            power_w,
            now_s,
            now_s,
            feasible,
        )

    def _tell(self, segment: Segment) -> None:
        if self._world.now_s > segment.begun_s:
            self._observer(replace(segment, ended_s=self._world.now_s))

    def to_list(self) -> list[Any]:
        """The open segments, in words that JSON knows."""
        return [
            [server, list(gpus), asdict(segment)]
            for open_ in self._open.values()
            for (server, gpus), segment in open_.items()
        ]

    def restore(self, raw: list[Any]) -> None:
        """Go on with these."""
        self._open = {}
        for server, gpus, fields in raw:
            segment = Segment(**fields)
            self._open.setdefault(segment.job, {})[server, tuple(gpus)] = segment


def _same(before: Segment, after: Segment) -> bool:
    return (before.partner_class, before.throughput, before.power_w, before.gpus) == (
        after.partner_class,
        after.throughput,
        after.power_w,
        after.gpus,
    )
