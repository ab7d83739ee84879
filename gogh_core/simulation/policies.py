"""Simple schedulers to compare with, working on the world itself.

`first_come` takes jobs in order of arrival, never shares, leaves every server on. `best_fit` gives
each job the place that costs the least energy per step, shares where both promises hold, and
switches idle servers off. Both know the true mean throughputs, which no real scheduler does: they
are at their best here. What they do not know is how fast a particular GPU is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gogh_core import hardware
from gogh_core.domain import JobState, Mode, PowerState, Slot
from gogh_core.simulation import actions
from gogh_core.simulation.arrivals import peak_rate
from gogh_core.simulation.records import JobRecord, ServerRecord
from gogh_core.simulation.world import World

__all__ = ["POLICIES", "Policy", "best_fit", "first_come"]

Policy = Callable[[World], None]
_Users = dict[tuple[str, int], list[JobRecord]]
"""Who sits on each GPU (server, index)."""
_USABLE = (PowerState.ON, PowerState.SWITCHING_ON)


def first_come(world: World, only: Callable[[JobRecord], bool] = lambda _: True) -> None:
    """First come, first served: the first free GPUs that keep the promise, alone."""
    for record in _queue(world, lambda job: job.demand.job.submitted_at):
        if only(record):
            slots = _first_free(world, record)
            if slots:
                actions.place(world, record.id, slots)
    for record in _short(world, only):
        _grow(world, record, _free_singles(world, record))


def best_fit(world: World) -> None:
    """Least energy per step, sharing where both promises hold; idle servers go off."""

    def urgency(job: JobRecord) -> tuple[float, object]:
        return -job.demand.job.priority, job.demand.job.submitted_at

    for record in _queue(world, urgency):
        slots = _cheapest(world, record)
        if slots:
            _switch_on(world, slots)
            actions.place(world, record.id, slots)
    for record in _short(world):
        found = sorted(_offers(world, record), key=lambda offer: (offer.joules, offer.slot.server))
        _grow(world, record, [offer.slot for offer in found], switch=True)
    used = {place.server for job in world.jobs.values() for place in job.places}
    for server_id, server in world.servers.items():
        if server_id not in used and server.power in _USABLE:
            actions.switch(world, server_id, on=False)


def always_on(world: World) -> None:
    """First come, first served, as a policy of its own."""
    first_come(world)


POLICIES: dict[str, Policy] = {"fcfs": always_on, "best_fit": best_fit}


@dataclass(frozen=True, slots=True)
class _Offer:
    slot: Slot
    rate: float
    joules: float
    """Energy per step that taking it adds."""


def _queue(world: World, key: Callable[[JobRecord], object]) -> list[JobRecord]:
    waiting = [job for job in world.jobs.values() if job.state is JobState.WAITING]
    return sorted(waiting, key=lambda job: (key(job), job.id))


def _short(world: World, only: Callable[[JobRecord], bool] = lambda _: True) -> list[JobRecord]:
    """Running spread jobs that need more replicas than they have."""
    running = [
        record
        for record in world.jobs.values()
        if record.demand.job.mode is Mode.SPREAD and record.places and only(record)
    ]
    users = _users(world) if running else {}
    found = []
    for record in running:
        have = sum(_rate_at(world, record, place.slot, users) for place in record.places)
        if have < world.required(record) and len(record.places) < record.demand.job.max_gpus:
            found.append(record)
    return found


def _grow(world: World, record: JobRecord, offers: Iterable[Slot], *, switch: bool = False) -> None:
    slots = [place.slot for place in record.places]
    need = world.required(record)
    users = _users(world)
    have = sum(_rate_at(world, record, slot, users) for slot in slots)
    before = len(slots)
    for slot in offers:
        if have >= need or len(slots) >= record.demand.job.max_gpus:
            break
        if slot not in slots:
            slots.append(slot)
            have += _rate_at(world, record, slot, users)
    if len(slots) > before:
        if switch:
            _switch_on(world, slots)
        actions.move(world, record.id, tuple(slots))


def _switch_on(world: World, slots: Iterable[Slot]) -> None:
    for slot in slots:
        if world.servers[slot.server].power not in _USABLE:
            actions.switch(world, slot.server, on=True)


def _users(world: World) -> _Users:
    found: _Users = {}
    for job in world.jobs.values():
        for place in job.places:
            for gpu in place.gpus:
                found.setdefault((place.server, gpu), []).append(job)
    return found


def _rate_at(world: World, record: JobRecord, slot: Slot, users: _Users) -> float:
    """The mean rate of one replica or gang on a slot, with whoever is there."""
    others = [job for job in users.get((slot.server, slot.gpus[0]), []) if job is not record]
    names = (record.demand.job.job_class, *(job.demand.job.job_class for job in others[:1]))
    run = world.truth.run(world.servers[slot.server].server.gpu_type, len(slot.gpus), names)
    return run.throughput[0] if run else 0.0


def _alive(server: ServerRecord) -> list[int]:
    return [gpu for gpu in range(server.server.gpus) if gpu not in server.dead]


def _free(server: ServerRecord, users: _Users) -> list[int]:
    return [gpu for gpu in _alive(server) if not users.get((server.server.id, gpu))]


def _first_free(world: World, record: JobRecord) -> tuple[Slot, ...]:
    job = record.demand.job
    if job.mode is Mode.SPREAD:
        return _replicas(world, record, _free_singles(world, record))
    users = _users(world)
    for server in world.servers.values():
        if server.power not in _USABLE or server.drain:
            continue
        free = _free(server, users)
        for count in sorted(job.gpu_counts):
            run = world.truth.run(server.server.gpu_type, count, (job.job_class,))
            if run and count <= len(free) and run.throughput[0] >= job.required_throughput:
                return (Slot(server.server.id, tuple(free[:count])),)
    return ()


def _free_singles(world: World, record: JobRecord) -> list[Slot]:
    users = _users(world)
    return [
        Slot(server.server.id, (gpu,))
        for server in world.servers.values()
        if server.power in _USABLE
        and (run := world.truth.run(server.server.gpu_type, 1, (record.demand.job.job_class,)))
        and _kept(record, run.throughput[0])
        for gpu in _free(server, users)
    ]


def _replicas(world: World, record: JobRecord, offers: Iterable[Slot]) -> tuple[Slot, ...]:
    """Slots that reach the rate together, or as many as there are."""
    chosen: list[Slot] = []
    have, need, users = 0.0, world.required(record), _users(world)
    for slot in offers:
        if have >= need or len(chosen) >= record.demand.job.max_gpus:
            break
        chosen.append(slot)
        have += _rate_at(world, record, slot, users)
    return tuple(chosen)


def _cheapest(world: World, record: JobRecord) -> tuple[Slot, ...]:
    offers = sorted(_offers(world, record), key=lambda offer: (offer.joules, offer.slot.server))
    if record.demand.job.mode is Mode.SPREAD:
        return _replicas(world, record, [offer.slot for offer in offers])
    return (offers[0].slot,) if offers else ()


def _offers(world: World, record: JobRecord) -> list[_Offer]:
    """Every place where the job keeps its promise, and so does who is there already."""
    users = _users(world)
    job = record.demand.job
    counts = (1,) if job.mode is Mode.SPREAD else tuple(sorted(job.gpu_counts))
    found = []
    for server in world.servers.values():
        if server.power is PowerState.DOWN or server.drain:
            continue
        free = _free(server, users)
        idle_w = hardware.get(server.server.gpu_type).idle_w
        empty = len(free) == len(_alive(server))
        # An empty server would be off without this job: its own draw is the job's doing.
        extra_w = (server.server.base_w + idle_w * len(free)) if empty else 0.0
        for count in counts:
            run = world.truth.run(server.server.gpu_type, count, (job.job_class,))
            if run is None or count > len(free) or not _kept(record, run.throughput[0]):
                continue
            added_w = (run.power_w - idle_w) * count + extra_w
            # All free GPUs of a server are alike; spread jobs may take several of them.
            spans = free if job.mode is Mode.SPREAD else [free[0]]
            for first in spans:
                gpus = (first,) if count == 1 else tuple(free[:count])
                slot = Slot(server.server.id, gpus)
                found.append(_Offer(slot, run.throughput[0], added_w / run.throughput[0]))
        found += _shared(world, record, server)
    return found


def _kept(record: JobRecord, rate: float) -> bool:
    """Whether a place is fast enough: for a replica, that as many as allowed carry the peak."""
    job = record.demand.job
    if job.mode is Mode.SPREAD:
        return rate * job.max_gpus >= peak_rate(record.demand)
    return rate >= job.required_throughput


def _shared(world: World, record: JobRecord, server: ServerRecord) -> list[_Offer]:
    job = record.demand.job
    found: list[_Offer] = []
    if job.shareable is False:
        return found
    counts = (1,) if job.mode is Mode.SPREAD else job.gpu_counts
    users = _users(world)
    for host in world.jobs.values():
        other = host.demand.job
        if host is record or other.shareable is False or other.mode is Mode.SPREAD:
            continue
        if "owner" in (job.shareable, other.shareable) and job.owner != other.owner:
            continue
        for place in host.places:
            alone = len(users[place.server, place.gpus[0]]) == 1
            if place.server != server.server.id or not alone or len(place.gpus) not in counts:
                continue
            kind, count = server.server.gpu_type, len(place.gpus)
            before = world.truth.run(kind, count, (other.job_class,))
            both = world.truth.run(kind, count, (other.job_class, job.job_class))
            if before is None or both is None or len(host.places) > 1:
                continue
            theirs, ours = both.throughput
            if theirs < other.required_throughput or not _kept(record, ours):
                continue
            # What the other loses has to be done later, at its own cost per step.
            lost_w = before.power_w * count * (1 - theirs / before.throughput[0])
            added_w = (both.power_w - before.power_w) * count + lost_w
            found.append(_Offer(place.slot, ours, added_w / ours))
    return found
