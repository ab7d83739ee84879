"""The world itself: a virtual clock, servers, jobs, and what happens between two moments.

`World.step` runs one stretch of constant rates; `advance` runs many of them, in ticks where
telemetry is wanted (`recorder`), from event to event where it is not. Nothing here touches a disk.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import numpy as np

from gogh_core.cluster import each, label
from gogh_core.domain import JobKind, JobState, Mode, PowerState, Server
from gogh_core.errors import InvalidInput
from gogh_core.simulation.arrivals import CHECKPOINT_S, Demand, Source, request_rate
from gogh_core.simulation.rates import EPSILON, Key, Sharing, Tick, rates_of, run_at, sharing_of
from gogh_core.simulation.records import JobRecord, ServerRecord, Totals
from gogh_core.simulation.truth import Truth, normal

__all__ = ["Event", "Recorder", "World"]

_KEPT = 0.95  # a promise counts as kept from this share on: what noise alone takes away
_NOISE = 0.03  # of a job's rate from tick to tick, log-normal
_SPEED_SPREAD = 0.04  # nominally equal GPUs differ
_MAX_FAILURES = 3
_RATE_STEP_S = 900.0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job."""

    at_s: float
    job: str
    event: str
    server: str | None = None
    gpus: tuple[int, ...] | None = None
    partner: str | None = None
    detail: str | None = None


class Recorder(Protocol):
    """Who writes down what happens."""

    def tick(self, world: World, tick: Tick) -> None:
        """A stretch has ended at `world.now_s`."""
        ...


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
        self._unread: dict[str, list[Any]] = {"servers": [], "jobs": []}
        self._speed: dict[tuple[str, int], float] = {}
        self._unit: dict[tuple[str, tuple[int, ...]], float] = {}

    # -- the clock -------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The virtual clock."""
        return self.moment(self.now_s)

    def moment(self, seconds: float) -> datetime:
        """A time of this world as a datetime."""
        return self.start + timedelta(seconds=seconds)

    def settle(self) -> None:
        """Let everything happen that is due now: switches, arrivals, starts."""
        for server in self.servers.values():
            if server.ready_s <= self.now_s + EPSILON:
                if server.power is PowerState.SWITCHING_ON:
                    server.power, server.since_s = PowerState.ON, self.now_s
                elif server.power is PowerState.SWITCHING_OFF:
                    server.power, server.since_s = PowerState.OFF, self.now_s
        while self.coming is not None and self.coming.arrives_s <= self.now_s + EPSILON:
            self._arrive(self.coming)
        for record in list(self.jobs.values()):
            if record.pending and self._ready(record):
                self._begin(record)
        self._evict()
        self._tell_partners()

    def step(self, until_s: float, recorder: Recorder | None = None) -> Tick:
        """Run from now to `until_s` at the rates of now."""
        self.settle()
        tick = rates_of(self)
        span_s = until_s - self.now_s
        self._add_up(tick, span_s)
        noise = self._noise(tick) if recorder is not None else {}
        self.now_s = until_s
        for job_id, rates in tick.rates.items():
            self._progress(self.jobs[job_id], rates, span_s * noise.get(job_id, 1.0))
        for record in list(self.jobs.values()):
            self._end_or_save(record, sum(tick.rates.get(record.id, ())))
        if recorder is not None:
            recorder.tick(self, tick)
        return tick

    def next_event_s(self, horizon_s: float) -> float:
        """When something will happen next by itself, at most `horizon_s`."""
        self.settle()
        times = [horizon_s]
        if any(record.demand.base_rate is not None for record in self.jobs.values()):
            times.append((math.floor(self.now_s / _RATE_STEP_S + 1e-9) + 1) * _RATE_STEP_S)
        if self.coming is not None:
            times.append(self.coming.arrives_s)
        for server in self.servers.values():
            if server.power in (PowerState.SWITCHING_ON, PowerState.SWITCHING_OFF):
                times.append(server.ready_s)
        tick = rates_of(self)
        for record in self.jobs.values():
            times += [place.ready_s for place in record.places]
            rate = sum(tick.rates.get(record.id, ()))
            total = record.demand.job.total_steps
            if total is not None and rate > 0:
                times.append(self.now_s + max((total - record.steps) / rate, EPSILON))
            if record.demand.lasts_s is not None and record.started_s is not None:
                times.append(record.started_s + record.demand.lasts_s)
        return min(time for time in times if time > self.now_s + EPSILON / 2)

    # -- rates -----------------------------------------------------------------------------

    def speed(self, server: str, gpu: int) -> float:
        """How fast this GPU is among its kind."""
        if self.alike:
            return 1.0
        key = (server, gpu)
        if key not in self._speed:
            drawn = math.exp(_SPEED_SPREAD * normal(self.seed, "speed", server, gpu))
            self._speed[key] = min(max(drawn, 0.85), 1.12)
        return self._speed[key]

    def _noise(self, tick: Tick) -> dict[str, float]:
        rng = np.random.default_rng([self.seed, 1, round(self.now_s)])
        drawn = np.exp(_NOISE * rng.standard_normal(len(tick.rates))).tolist()
        return dict(zip(tick.rates, drawn, strict=True))

    # -- what a stretch changes ------------------------------------------------------------

    def _add_up(self, tick: Tick, span_s: float) -> None:
        totals = self.totals
        totals.energy_j += tick.watts * span_s
        totals.gpu_energy_j += tick.gpu_watts * span_s
        totals.busy_gpu_s += tick.busy * span_s
        totals.on_gpu_s += tick.on * span_s
        for (server_id, gpu), load in tick.loads.items():
            self.servers[server_id].energy_j[gpu] += load.power_w * span_s
        for record in self.jobs.values():
            if not record.active:
                continue
            if record.places:
                totals.running_s += span_s
            else:
                totals.waiting_s += span_s
                record.waited_s += span_s
            required = self.required(record)
            if required > 0:
                totals.promised_s += span_s
                record.promised_s += span_s
                if sum(tick.rates.get(record.id, ())) >= _KEPT * required:
                    totals.attained_s += span_s
                    record.attained_s += span_s

    def required(self, record: JobRecord) -> float:
        """What is promised to the job at this moment."""
        if record.demand.base_rate is None:
            return record.demand.job.required_throughput
        return request_rate(record.demand, self.now)

    def _progress(self, record: JobRecord, rates: Sequence[float], span_s: float) -> None:
        gained = sum(rates) * span_s
        record.steps += gained
        if record.demand.job.mode is Mode.SPREAD:
            for place, rate in zip(record.places, rates, strict=True):
                place.steps += rate * span_s
        if record.demand.base_rate is not None:  # beyond what is asked for it is only backlog
            gained = min(gained, self.required(record) * span_s)
        self.totals.work_s += gained / self._middling(record)

    def _middling(self, record: JobRecord) -> float:
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

    def _end_or_save(self, record: JobRecord, rate: float) -> None:
        if record.state is not JobState.RUNNING:
            return
        total, lasts_s = record.demand.job.total_steps, record.demand.lasts_s
        done = total is not None and record.steps >= total - 1e-9 * total
        over = (
            lasts_s is not None
            and record.started_s is not None
            and self.now_s >= record.started_s + lasts_s - EPSILON
        )
        if done or over:
            if total is not None:
                record.steps = total
            self.end(record, JobState.FINISHED, "finished")
        elif self.now_s - record.saved_s >= CHECKPOINT_S - EPSILON:
            record.saved_s += CHECKPOINT_S * math.floor(
                (self.now_s - record.saved_s + EPSILON) / CHECKPOINT_S
            )
            record.saved = max(record.saved, record.steps - rate * (self.now_s - record.saved_s))
            if record.demand.job.descriptors.kind is JobKind.TRAINING:
                self.tell(record, "checkpointed")

    def end(
        self, record: JobRecord, state: JobState, event: str, detail: str | None = None
    ) -> None:
        """The job leaves for good."""
        self.tell(record, event, detail)
        record.state, record.ended_s, record.since_s = state, self.now_s, self.now_s
        record.places, record.pending, record.partners = [], None, {}
        deadline = record.demand.job.deadline_at
        if state is JobState.FINISHED:
            self.totals.finished += 1
            self.totals.deadlines_met += int(deadline is not None and self.now <= deadline)
        else:
            self.totals.failed += 1
        self.totals.deadlines += int(deadline is not None)
        self.ended.append(record)

    def interrupt(self, record: JobRecord, detail: str, *, graceful: bool) -> None:
        """The job stops where it is; what was not saved is lost unless it can save now."""
        self._tell_stop(record, detail)
        if graceful and record.demand.graceful:
            record.saved, record.saved_s = record.steps, self.now_s
        if record.pending is None and record.steps > record.saved:
            self.totals.lost_steps_s += self.now_s - record.saved_s
            if record.demand.base_rate is None:
                self.totals.work_s -= (record.steps - record.saved) / self._middling(record)
        record.steps = record.saved
        record.places, record.pending, record.partners = [], None, {}
        record.state, record.since_s = JobState.WAITING, self.now_s

    def _arrive(self, demand: Demand) -> None:
        record = JobRecord(demand, since_s=demand.arrives_s)
        self.jobs[record.id] = record
        self.totals.submitted += 1
        self.events.append(Event(demand.arrives_s, record.id, "submitted"))
        self.drawn += 1
        self.previous_s = demand.arrives_s
        self.coming = self.source.draw(self.drawn, self.previous_s)

    def _ready(self, record: JobRecord) -> bool:
        gang = record.demand.job.mode is Mode.GANG
        on = [
            place.ready_s <= self.now_s + EPSILON
            and self.servers[place.server].power is PowerState.ON
            for place in record.places
        ]
        return bool(on) and (all(on) if gang else any(on))

    def _begin(self, record: JobRecord) -> None:
        event, record.pending = record.pending or "started", None
        record.state, record.since_s, record.saved_s = JobState.RUNNING, self.now_s, self.now_s
        if record.started_s is None:
            record.started_s = self.now_s
        record.partners = self.partners_of(record, sharing_of(self))
        for key, partner in record.partners.items():
            self.tell(record, event, at=key, partner=partner)

    def _evict(self) -> None:
        """Where memory does not suffice, the last to come is thrown out."""
        for key, users in sharing_of(self).items():
            left = list(users)
            while left and run_at(self, key, left) is None:
                last = max(left, key=lambda record: (record.since_s, record.id))
                left.remove(last)
                self._throw_out(last, key)

    def _throw_out(self, record: JobRecord, key: Key) -> None:
        record.failures += 1
        if record.demand.job.mode is Mode.SPREAD and len(record.places) > 1:
            self.tell(record, "stopped", "out of memory", at=key)
            record.places = [place for place in record.places if (place.server, place.gpus) != key]
        elif record.failures >= _MAX_FAILURES:
            self.end(record, JobState.FAILED, "failed", "out of memory")
        else:
            self.interrupt(record, "out of memory", graceful=False)

    # -- what is told ----------------------------------------------------------------------

    def tell(
        self,
        record: JobRecord,
        event: str,
        detail: str | None = None,
        *,
        at: Key | None = None,
        partner: str | None = None,
    ) -> None:
        """Note an event, at one place of the job (by default its first, if it has one)."""
        if at is None and record.places:
            at = (record.places[0].server, record.places[0].gpus)
            partner = record.partners.get(at)
        server, gpus = at or (None, None)
        self.events.append(Event(self.now_s, record.id, event, server, gpus, partner, detail))

    def _tell_stop(self, record: JobRecord, detail: str) -> None:
        """A gang stops as a whole, each replica of a spread job on its own."""
        if record.demand.job.mode is Mode.GANG or not record.partners:
            self.tell(record, "stopped", detail)
            return
        for key, partner in record.partners.items():
            self.tell(record, "stopped", detail, at=key, partner=partner)

    def partners_of(self, record: JobRecord, sharing: Sharing) -> dict[Key, str | None]:
        """Who shares each place where it runs."""
        found: dict[Key, str | None] = {}
        for place in record.places:
            users = sharing.get((place.server, place.gpus), [])
            if record in users:
                others = [other.id for other in users if other is not record]
                found[place.server, place.gpus] = others[0] if others else None
        return found

    def _tell_partners(self) -> None:
        sharing = sharing_of(self)
        for record in self.jobs.values():
            if record.state is not JobState.RUNNING:
                continue
            now = self.partners_of(record, sharing)
            for key, partner in now.items():
                if key not in record.partners:
                    self.tell(record, "started", at=key, partner=partner)
                elif record.partners[key] != partner:
                    self.tell(record, "partner", at=key, partner=partner)
            record.partners = now

    # -- on disk ---------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything that changes; what was drawn once is drawn again."""
        return {
            "now_s": self.now_s,
            "drawn": self.drawn,
            "previous_s": self.previous_s,
            "servers": [record.to_dict() for record in self.servers.values()]
            + self._unread["servers"],
            "jobs": [record.to_dict() for record in self.jobs.values()] + self._unread["jobs"],
            "totals": asdict(self.totals),
            "events": [asdict(event) for event in self.events],
        }

    def restore(self, raw: dict[str, Any]) -> None:
        """Go on where `to_dict` was called."""
        self.now_s, self.drawn = raw["now_s"], raw["drawn"]
        self.previous_s = raw["previous_s"]
        self._restore_records(raw["servers"], raw["jobs"])
        self.totals = Totals(**raw["totals"])
        self.events = [
            Event(**{**event, "gpus": tuple(event["gpus"]) if event["gpus"] is not None else None})
            for event in raw["events"]
        ]
        self.coming = self.source.draw(self.drawn, self.previous_s)

    def _restore_records(self, servers: list[Any], jobs: list[Any]) -> None:
        """Each record by itself: one that cannot be read is refused, and kept as it is on disk."""

        def server_name(entry: Any, index: int) -> str:
            return label(_inner(entry, "server", "id"), f"servers[{index}]")

        def job_name(entry: Any, index: int) -> str:
            return label(_inner(entry, "demand", "job", "id"), f"jobs[{index}]")

        known = {name: record.server for name, record in self.servers.items()}
        classes = set(self.truth.classes())

        def read_server(entry: Any) -> ServerRecord:
            record = ServerRecord.from_dict(entry)
            if record.server != known.get(record.server.id):
                raise InvalidInput("is no server of these settings")
            return record

        def read_job(entry: Any) -> JobRecord:
            record = JobRecord.from_dict(entry)
            if record.demand.job.job_class not in classes:
                raise InvalidInput("is of a class that this cluster does not know")
            for place in record.places:
                server = self.servers.get(place.server)
                if server is None or max(place.gpus) >= server.server.gpus:
                    raise InvalidInput("is on a server or GPU that is not known")
            return record

        read_servers, left_out = each(servers, read_server, server_name)
        self.servers = dict(read_servers)
        read_jobs, refused = each(jobs, read_job, job_name)
        self.jobs = dict(read_jobs)
        self._unread = {
            "servers": [_kept(e) for i, e in enumerate(servers) if server_name(e, i) in left_out],
            "jobs": [_kept(e) for i, e in enumerate(jobs) if job_name(e, i) in refused],
        }
        self.refused = refused | {f"server {name}": why for name, why in left_out.items()}


def _inner(entry: Any, *names: str) -> Any:
    """What stands there in nested objects; None where they are not."""
    for name in names:
        entry = entry.get(name) if isinstance(entry, dict) else None
    return entry


def _kept(entry: Any) -> Any:
    """A record that could not be read, as it can be written: with NaN or infinity it is a text."""
    try:
        json.dumps(entry, allow_nan=False)
    except ValueError:
        return json.dumps(entry)
    return entry
