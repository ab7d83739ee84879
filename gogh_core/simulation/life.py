"""The life of a job in the world: it comes, takes its seats, begins, is interrupted, ends.

Every change counts the job up to now first, and touches what it changed; the world works that out
when it settles. What happens is told as events, unless time goes by in steps without telemetry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gogh_core.domain import JobState, Mode, PowerState
from gogh_core.simulation import accounts
from gogh_core.simulation.arrivals import Demand
from gogh_core.simulation.floor import Spot
from gogh_core.simulation.rates import EPSILON, Key
from gogh_core.simulation.records import JobRecord, Place

if TYPE_CHECKING:
    from gogh_core.simulation.world import World

__all__ = [
    "Event",
    "arrive",
    "begin",
    "end",
    "end_or_save",
    "evict",
    "interrupt",
    "ready",
    "seat",
    "tell",
    "tell_partners",
]

_MAX_FAILURES = 3


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


def arrive(world: World, demand: Demand) -> None:
    """A job comes, and the next one is drawn."""
    record = JobRecord(demand, since_s=demand.arrives_s, number=world.drawn, at_s=world.now_s)
    record.present_s = world.totals.running_s + world.totals.waiting_s
    world.jobs[record.id] = record
    world.totals.submitted += 1
    if not world.by_events:
        world.events.append(Event(demand.arrives_s, record.id, "submitted"))
    world.drawn += 1
    world.previous_s = demand.arrives_s
    world.coming = world.source.draw(world.drawn, world.previous_s)
    if demand.base_rate is not None:
        world.services[record.id] = record
    world.undecided[record.id] = record
    world.touch(record)
    world.changed = True


def seat(world: World, record: JobRecord, places: list[Place]) -> None:
    """The job has these places from now on; those it has already are not disturbed."""
    world.count(record)
    world.touch(record)
    for place in record.places:
        if place not in places:
            world.floor.leave(record, place)
    for place in places:
        if place not in record.places:
            world.take_place(record, place)
    record.places = places
    world.touch(record)
    world.changed = True


def ready(world: World, record: JobRecord) -> bool:
    """Whether the job can begin: a gang with all of its places, others with one."""
    on = [
        place.ready_s <= world.now_s + EPSILON
        and world.servers[place.server].power is PowerState.ON
        for place in record.places
    ]
    gang = record.demand.job.mode is Mode.GANG
    return bool(on) and (all(on) if gang else any(on))


def begin(world: World, record: JobRecord) -> None:
    """The job has started, or started again, and runs."""
    world.count(record)
    event, record.pending = record.pending or "started", None
    record.state, record.since_s, record.saved_s = JobState.RUNNING, world.now_s, world.now_s
    if record.started_s is None:
        record.started_s = world.now_s
    world.touch(record)
    if not world.by_events:
        record.partners = _partners_of(world, record)
        for key, partner in record.partners.items():
            tell(world, record, event, at=key, partner=partner)


def end_or_save(world: World, record: JobRecord) -> None:
    """After a tick: the job ends if it is through, else it writes the checkpoint that is due."""
    if record.state is not JobState.RUNNING:
        return
    total, lasts_s = record.demand.job.total_steps, record.demand.lasts_s
    done = total is not None and record.steps >= total - 1e-9 * total
    over = (
        lasts_s is not None
        and record.started_s is not None
        and world.now_s >= record.started_s + lasts_s - EPSILON
    )
    if done or over:
        if total is not None:
            record.steps = total
        end(world, record, JobState.FINISHED, "finished")
    else:
        accounts.save(world, record)


def end(
    world: World, record: JobRecord, state: JobState, event: str, detail: str | None = None
) -> None:
    """The job leaves for good."""
    tell(world, record, event, detail)
    totals = world.totals
    record.state, record.ended_s, record.since_s = state, world.now_s, world.now_s
    seat(world, record, [])
    record.pending, record.partners = None, {}
    here_s = world.now_s - record.demand.arrives_s
    present_s = totals.running_s + totals.waiting_s - record.present_s
    record.crowd = present_s / here_s if here_s > 0 else 1.0
    deadline = record.demand.job.deadline_at
    if state is JobState.FINISHED:
        totals.finished += 1
        totals.deadlines_met += int(deadline is not None and world.now <= deadline)
    else:
        totals.failed += 1
    totals.deadlines += int(deadline is not None)
    world.ended.append(record)
    world.services.pop(record.id, None)
    world.undecided.pop(record.id, None)


def interrupt(world: World, record: JobRecord, detail: str, *, graceful: bool) -> None:
    """The job stops where it is; what was not saved is lost unless it can save now."""
    _tell_stop(world, record, detail)
    seat(world, record, [])
    if graceful and record.demand.graceful:
        record.saved, record.saved_s = record.steps, world.now_s
    if record.steps > record.saved:
        world.totals.lost_steps_s += world.now_s - record.saved_s
        if record.demand.base_rate is None:
            lost_s = (record.steps - record.saved) / world.middling(record)
            world.totals.work_s -= lost_s
            world.totals.lost_work_s += lost_s
    record.lost += record.steps - record.saved
    record.steps = record.saved
    record.pending, record.partners, record.decided = None, {}, False
    record.state, record.since_s = JobState.WAITING, world.now_s
    world.undecided[record.id] = record


def evict(world: World, spot: Spot) -> None:
    """Memory does not suffice: the last to come is thrown out."""
    record = max(spot.running, key=lambda record: (record.since_s, record.id))
    partner = next((other for other in spot.running if other is not record), None)
    if world.listener is not None:
        world.listener.evicted(record, spot, partner)
    record.failures += 1
    world.totals.evictions += 1
    if record.demand.job.mode is Mode.SPREAD and len(record.places) > 1:
        key = (spot.server, spot.gpus)
        tell(world, record, "stopped", "out of memory", at=key)
        seat(world, record, [p for p in record.places if (p.server, p.gpus) != key])
    elif record.failures >= _MAX_FAILURES:
        end(world, record, JobState.FAILED, "failed", "out of memory")
    else:
        interrupt(world, record, "out of memory", graceful=False)


def tell(
    world: World,
    record: JobRecord,
    event: str,
    detail: str | None = None,
    *,
    at: Key | None = None,
    partner: str | None = None,
) -> None:
    """Note an event, at one place of the job (by default its first, if it has one)."""
    if world.by_events:
        return
    if at is None and record.places:
        at = (record.places[0].server, record.places[0].gpus)
        partner = record.partners.get(at)
    server, gpus = at or (None, None)
    world.events.append(Event(world.now_s, record.id, event, server, gpus, partner, detail))


def _tell_stop(world: World, record: JobRecord, detail: str) -> None:
    """A gang stops as a whole, each replica of a spread job on its own."""
    if record.demand.job.mode is Mode.GANG or not record.partners:
        tell(world, record, "stopped", detail)
        return
    for key, partner in record.partners.items():
        tell(world, record, "stopped", detail, at=key, partner=partner)


def _partners_of(world: World, record: JobRecord) -> dict[Key, str | None]:
    """Who shares each place where it runs."""
    found: dict[Key, str | None] = {}
    for place in record.places:
        spot = world.spot(place)
        running = world.running_on(spot)
        if record in running:
            others = [other.id for other in running if other is not record]
            found[place.server, place.gpus] = others[0] if others else None
    return found


def tell_partners(world: World, record: JobRecord) -> None:
    """Tell of replicas that began and of partners that came or went."""
    if record.state is not JobState.RUNNING:
        return
    now = _partners_of(world, record)
    for key, partner in now.items():
        if key not in record.partners:
            tell(world, record, "started", at=key, partner=partner)
        elif record.partners[key] != partner:
            tell(world, record, "partner", at=key, partner=partner)
    record.partners = now
