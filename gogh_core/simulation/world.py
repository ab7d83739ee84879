"""The world itself: a virtual clock, servers, jobs, and what happens between two moments.

Whatever changes a place, a server or a job touches it; `settle` lets everything happen that is due
and works out anew only what was touched. Time goes by in one of two ways: `step` to the next event
(replay, `engine`), or `tick` with telemetry and its noise (`recorder`), as the embedded cluster
does. Nothing here touches a disk.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from gogh_core.domain import JobState, Mode, PowerState, Server
from gogh_core.simulation import accounts, life, saving
from gogh_core.simulation.arrivals import (
    Demand,
    Source,
    quarter_begins_s,
    quarter_of,
    request_rate,
)
from gogh_core.simulation.due import Due
from gogh_core.simulation.floor import Floor, Spot
from gogh_core.simulation.life import Event
from gogh_core.simulation.listeners import Listener, Recorder
from gogh_core.simulation.rates import EPSILON, Key, Tick, noise_of, rates_of, run_at
from gogh_core.simulation.records import JobRecord, Place, ServerRecord, Totals
from gogh_core.simulation.truth import Truth, normal

__all__ = ["World"]

_SPEED_SPREAD = 0.04  # nominally equal GPUs differ


class World:
    """Servers and jobs on a virtual clock."""

    def __init__(
        self,
        servers: Iterable[Server],
        truth: Truth,
        source: Source,
        *,
        start: datetime,
        seed: int,
        alike: bool = False,
    ) -> None:
        self.truth = truth
        self.source = source
        self.start = start
        self.seed = seed
        self.alike = alike
        """GPUs of a type are all the same (trace replay)."""
        self.now_s = 0.0
        self.servers = {server.id: ServerRecord(server) for server in servers}
        self.jobs: dict[str, JobRecord] = {}
        self.totals = Totals()
        self.ended: list[JobRecord] = []
        """Ended since they were last taken away."""
        self.events: list[Event] = []
        self.drawn = 0
        self.previous_s = 0.0
        self.coming: Demand | None = source.draw(0, 0.0)
        self.refused: dict[str, str] = {}
        """Jobs and servers whose record on disk cannot be read, with the reason."""
        self.unread: dict[str, list[Any]] = {"servers": [], "jobs": []}
        """Those records as they stand on disk."""
        self.by_events = False
        """Time goes by in steps to the next event: ends are foreseen, nothing is told."""
        self.changed = False
        """A job came, went or lost its place, or a request rate changed, since this was reset."""
        self.listener: Listener | None = None
        self._speed: dict[tuple[str, int], float] = {}
        self._unit: dict[tuple[str, tuple[int, ...]], float] = {}
        self.rebuild()

    def rebuild(self) -> None:
        """Work everything out from the records, which stay as they are."""
        self.floor = Floor(self.servers)
        self.tally = accounts.Tally()
        self._switches = Due(self._switch_holds)
        self._starts = Due(self._start_holds)
        self._ends = Due(self._end_holds)
        self._touched_spots: dict[Key, None] = {}
        self._touched_jobs: dict[str, JobRecord] = {}
        self._touched_servers: dict[str, ServerRecord] = {}
        self._quarter = quarter_of(self.start, self.now_s)
        self.services: dict[str, JobRecord] = {}
        """Jobs whose promise follows the day."""
        self.undecided: dict[str, JobRecord] = {}
        """Waiting jobs that nobody has decided about."""
        for record in self.jobs.values():
            for place in record.places:
                self.take_place(record, place)
        for record in self.jobs.values():
            for place in record.places:
                self._work_out_spot(self.spot(place))
        for record in self.jobs.values():
            record.standing = None
            if not record.active:
                continue
            if record.demand.base_rate is not None:
                self.services[record.id] = record
            if not record.places and not record.decided:
                self.undecided[record.id] = record
            self._work_out_job(record)
        for server in self.servers.values():
            if server.power in (PowerState.SWITCHING_ON, PowerState.SWITCHING_OFF):
                self._switches.add(server.ready_s, server.server.id)
            self.floor.draw(server)
        self.floor.add_up()

    # -- the clock -------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The virtual clock."""
        return self.moment(self.now_s)

    def moment(self, seconds: float) -> datetime:
        """A time of this world as a datetime."""
        return self.start + timedelta(seconds=seconds)

    def settle(self) -> None:
        """Let everything happen that is due now, and work out what was touched."""
        due_s = self.now_s + EPSILON
        for name in sorted(self._switches.take(due_s), key=lambda name: self.servers[name].number):
            self._switched(self.servers[name])
        while self.coming is not None and self.coming.arrives_s <= due_s:
            life.arrive(self, self.coming)
        for name in self._starts.take(due_s):
            record = self.jobs[name]
            self.touch(record)
        pending = [record for record in self._touched_jobs.values() if record.pending]
        for record in sorted(pending, key=lambda record: record.number):
            if life.ready(self, record):
                life.begin(self, record)
        if quarter_of(self.start, self.now_s) != self._quarter:
            self._new_quarter()
        if self._touched_jobs or self._touched_servers or self._touched_spots:
            self._work_out()

    def step(self, until_s: float) -> None:
        """Run from now to `until_s`, at most to the next event, at the rates of now."""
        self.settle()
        self._pass(until_s)
        ended = [self.jobs[name] for name in self._ends.take(self.now_s + EPSILON)]
        for record in sorted(ended, key=lambda record: record.number):
            accounts.finish(self, record)
            life.end(self, record, JobState.FINISHED, "finished")

    def tick(self, until_s: float, recorder: Recorder) -> Tick:
        """Run from now to `until_s` at the rates of now, with noise, and let it be recorded."""
        self.settle()
        tick = rates_of(self)
        noise = noise_of(self, tick)
        self._pass(until_s)
        self.count_all(noise)
        for record in list(self.jobs.values()):
            life.end_or_save(self, record)
        recorder.tick(self, tick)
        return tick

    def count_all(self, noise: dict[str, float] | None = None) -> None:
        """Count every job and GPU up to now; the totals of work are complete after that."""
        for record in self.jobs.values():
            accounts.count(self, record, noise.get(record.id, 1.0) if noise else 1.0)
        for server in self.servers.values():
            accounts.count_gpus(server, self.now_s)

    def next_event_s(self, horizon_s: float) -> float:
        """When something will happen next by itself, at most `horizon_s`."""
        self.settle()
        times = [horizon_s]
        if self.services:
            times.append(quarter_begins_s(self.start, self._quarter + 1))
        if self.coming is not None:
            times.append(self.coming.arrives_s)
        times += [
            at_s
            for due in (self._switches, self._starts, self._ends)
            if (at_s := due.next_s()) is not None
        ]
        return max(min(times), self.now_s)

    def go_by_events(self) -> None:
        """From now on time goes by in steps: ends are foreseen, and nothing is told."""
        self.by_events = True
        self.events.clear()
        for record in self.jobs.values():
            if record.active:
                self._foresee_end(record)

    def _pass(self, until_s: float) -> None:
        span_s = until_s - self.now_s
        totals, floor = self.totals, self.floor
        totals.energy_j += floor.watts * span_s
        totals.gpu_energy_j += floor.gpu_watts * span_s
        totals.busy_gpu_s += floor.busy * span_s
        totals.on_gpu_s += floor.on * span_s
        self.tally.add_to(totals, span_s)
        self.now_s = until_s

    # -- what was touched ------------------------------------------------------------------

    def touch(self, record: JobRecord) -> None:
        """A job and everything where it sits has to be worked out anew."""
        self._touched_jobs[record.id] = record
        for place in record.places:
            self._touch_spot(place.server, place.gpus)

    def touch_server(self, server: ServerRecord) -> None:
        """A server and every job on it have to be worked out anew."""
        self._touched_servers[server.server.id] = server
        for spot in self.floor.on_server(server.server.id):
            self._touch_spot(spot.server, spot.gpus)

    def _touch_spot(self, server: str, gpus: tuple[int, ...]) -> None:
        self._touched_spots[server, gpus] = None
        self._touched_servers[server] = self.servers[server]

    def _work_out(self) -> None:
        while self._touched_spots:
            spots = [
                spot for key in self._touched_spots if (spot := self.floor.spot(*key)) is not None
            ]
            self._touched_spots.clear()
            for spot in spots:
                self._touched_jobs.update((job.id, job) for job, _ in spot.seats)
                self._work_out_spot(spot)
            for spot in sorted(spots, key=lambda spot: spot.seats[0][0].number):
                if self._touched_spots:  # somebody was thrown out, perhaps from here too
                    self._work_out_spot(spot)
                while spot.running and spot.run is None:
                    life.evict(self, spot)
                    self._work_out_spot(spot)
        jobs = sorted(self._touched_jobs.values(), key=lambda record: record.number)
        servers = list(self._touched_servers.values())
        self._touched_jobs.clear()
        self._touched_servers.clear()
        for record in jobs:
            self.count(record)
            self._work_out_job(record)
            if not self.by_events:
                life.tell_partners(self, record)
        for server in servers:
            accounts.count_gpus(server, self.now_s)
            self.floor.draw(server)
        if servers:
            self.floor.add_up()
        if self.listener is not None:
            self.listener.changed(jobs, servers)

    def running_on(self, spot: Spot) -> list[JobRecord]:
        """Jobs of a spot that really run, in order of arrival."""
        due_s = self.now_s + EPSILON
        return [job for job, place in spot.seats if job.pending is None and place.ready_s <= due_s]

    def _work_out_spot(self, spot: Spot) -> None:
        spot.running = self.running_on(spot)
        spot.run = None
        if spot.running:
            spot.run = run_at(self, (spot.server, spot.gpus), spot.running)

    def _work_out_job(self, record: JobRecord) -> None:
        record.rates = []
        if record.places and record.pending is None:
            rates = [self.spot(place).rate_of(record) for place in record.places]
            record.rates = [min(rates)] if record.demand.job.mode is Mode.GANG else rates
        record.rate = sum(record.rates)
        record.required = self.required(record)
        self.tally.restand(record, accounts.standing_of(self, record))
        if self.by_events:
            self._foresee_end(record)

    def _foresee_end(self, record: JobRecord) -> None:
        record.ends_s = None
        if record.state is not JobState.RUNNING:
            return
        total, lasts_s = record.demand.job.total_steps, record.demand.lasts_s
        if total is not None and record.rate > 0:
            left = max(total - record.steps, 0.0)
            record.ends_s = record.at_s + left / record.rate
        if lasts_s is not None and record.started_s is not None:
            over_s = max(record.started_s + lasts_s, record.at_s)
            record.ends_s = over_s if record.ends_s is None else min(record.ends_s, over_s)
        if record.ends_s is not None:
            self._ends.add(record.ends_s, record.id)

    def count(self, record: JobRecord) -> None:
        """Count a job up to now, its checkpoints included."""
        accounts.count(self, record)
        accounts.save(self, record)

    def spot(self, place: Place) -> Spot:
        """The spot of a place that somebody has."""
        spot = self.floor.spot(place.server, place.gpus)
        assert spot is not None, f"nobody sits on {place}"
        return spot

    def _switch_holds(self, at_s: float, name: str) -> bool:
        server = self.servers.get(name)
        switching = (PowerState.SWITCHING_ON, PowerState.SWITCHING_OFF)
        return server is not None and server.ready_s == at_s and server.power in switching

    def _start_holds(self, at_s: float, name: str) -> bool:
        record = self.jobs.get(name)
        return record is not None and any(place.ready_s == at_s for place in record.places)

    def _end_holds(self, at_s: float, name: str) -> bool:
        record = self.jobs.get(name)
        return record is not None and record.ends_s == at_s

    def take_place(self, record: JobRecord, place: Place) -> None:
        """Enter a place of a job into the floor, and when it will be ready."""
        slowest = min(self.speed(place.server, gpu) for gpu in place.gpus)
        self.floor.sit(record, place, slowest)
        if place.ready_s > self.now_s + EPSILON:
            self._starts.add(place.ready_s, record.id)

    def begin_switch(self, server: ServerRecord, power: PowerState, ready_s: float) -> None:
        """A server is switched on or off, which takes until then."""
        server.power, server.ready_s, server.since_s = power, ready_s, self.now_s
        self._switches.add(ready_s, server.server.id)
        self.touch_server(server)

    def _switched(self, server: ServerRecord) -> None:
        on = server.power is PowerState.SWITCHING_ON
        server.power = PowerState.ON if on else PowerState.OFF
        server.since_s = self.now_s
        self.touch_server(server)
        for spot in self.floor.on_server(server.server.id):
            self._touched_jobs.update((job.id, job) for job, _ in spot.seats)

    def _new_quarter(self) -> None:
        self._quarter = quarter_of(self.start, self.now_s)
        for record in self.services.values():
            if self.required(record) != record.required:
                self._touched_jobs[record.id] = record
                self.changed = True

    def decided(self) -> None:
        """Somebody has decided: jobs that still wait do so because they were left waiting."""
        for record in self.undecided.values():
            if not record.places:
                record.decided = True
                self._touched_jobs[record.id] = record
        self.undecided.clear()

    # -- what a job or GPU is worth --------------------------------------------------------

    def speed(self, server: str, gpu: int) -> float:
        """How fast this GPU is among its kind."""
        if self.alike:
            return 1.0
        key = (server, gpu)
        if key not in self._speed:
            drawn = math.exp(_SPEED_SPREAD * normal(self.seed, "speed", server, gpu))
            self._speed[key] = min(max(drawn, 0.85), 1.12)
        return self._speed[key]

    def required(self, record: JobRecord) -> float:
        """What is promised to the job at this moment."""
        if record.demand.base_rate is None:
            return record.demand.job.required_throughput
        return request_rate(record.demand, self.now)

    def middling(self, record: JobRecord) -> float:
        """Throughput of the job on one middling GPU of this cluster: the unit of work."""
        key = (record.demand.job.job_class, record.demand.job.gpu_counts)
        if key not in self._unit:
            types = {server.server.gpu_type for server in self.servers.values()}
            found = sorted(
                run.throughput[0] / count
                for gpu_type in types
                for count in key[1]
                if (run := self.truth.run(gpu_type, count, (key[0],))) is not None
            )
            self._unit[key] = found[len(found) // 2] if found else 1.0
        return self._unit[key]

    # -- on disk ---------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything that changes; what was drawn once is drawn again."""
        return saving.to_dict(self)

    def restore(self, raw: dict[str, Any]) -> None:
        """Go on where `to_dict` was called."""
        saving.restore(self, raw)
