"""The embedded cluster's own scheduler, for jobs that GOGH has released.

First come, first served, alone, on the first free GPUs that keep the promise; it switches nothing
and moves nobody, and knows the true mean throughputs.
"""

from __future__ import annotations

from collections.abc import Iterable

from gogh_core.domain import JobState, Mode, PowerState, Slot
from gogh_core.simulation import actions
from gogh_core.simulation.arrivals import peak_rate
from gogh_core.simulation.records import JobRecord, ServerRecord
from gogh_core.simulation.world import World

__all__ = ["place_released"]

_Users = dict[tuple[str, int], list[JobRecord]]
"""Who sits on each GPU (server, index)."""
_USABLE = (PowerState.ON, PowerState.SWITCHING_ON)


def place_released(world: World) -> None:
    """First come, first served: the first free GPUs that keep the promise, alone."""
    waiting = [job for job in world.jobs.values() if job.released and job.state is JobState.WAITING]
    for record in sorted(waiting, key=lambda job: (job.demand.job.submitted_at, job.id)):
        slots = _first_free(world, record)
        if slots:
            actions.place(world, record.id, slots)
    for record in _short(world):
        _grow(world, record, _free_singles(world, record))


def _short(world: World) -> list[JobRecord]:
    """Running released spread jobs that need more replicas than they have."""
    running = [
        record
        for record in world.jobs.values()
        if record.demand.job.mode is Mode.SPREAD and record.places and record.released
    ]
    users = _users(world) if running else {}
    found = []
    for record in running:
        have = sum(_rate_at(world, record, place.slot, users) for place in record.places)
        if have < world.required(record) and len(record.places) < record.demand.job.max_gpus:
            found.append(record)
    return found


def _grow(world: World, record: JobRecord, offers: Iterable[Slot]) -> None:
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
        actions.move(world, record.id, tuple(slots))


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


def _free(server: ServerRecord, users: _Users) -> list[int]:
    return [
        gpu
        for gpu in range(server.server.gpus)
        if gpu not in server.dead and not users.get((server.server.id, gpu))
    ]


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


def _kept(record: JobRecord, rate: float) -> bool:
    """Whether a place is fast enough: for a replica, that as many as allowed carry the peak."""
    job = record.demand.job
    if job.mode is Mode.SPREAD:
        return rate * job.max_gpus >= peak_rate(record.demand)
    return rate >= job.required_throughput
