"""What a manager can be asked to do to the world, and the faults that can befall it.

Every function checks first and changes afterwards, so that a refused action changes nothing.
`carry` does what is written down: an action is carried out from the same words the first time and
whenever the cluster's log is read again, and does the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from gogh_core import hardware
from gogh_core.domain import JobState, Mode, PowerState, Slot
from gogh_core.errors import ActionFailed, InvalidInput
from gogh_core.simulation import life
from gogh_core.simulation.arrivals import MOVE_S
from gogh_core.simulation.records import JobRecord, Place, ServerRecord
from gogh_core.simulation.site import SWITCH_OFF_S, SWITCH_ON_S
from gogh_core.simulation.world import World

__all__ = ["FAULTS", "carry", "fault", "hold", "limit", "move", "place", "release", "switch"]

START_S = 20
FaultKind = Literal[
    "gpu_dies", "server_vanishes", "job_crashes", "telemetry_stops", "server_returns"
]


def carry(world: World, do: str, told: Mapping[str, Any]) -> None:
    """Carry out the action of that name, told in words that JSON knows."""
    if "slots" in told:
        told = {**told, "slots": tuple(Slot.from_dict(slot) for slot in told["slots"])}
    _ACTIONS[do](world, **told)


def place(
    world: World, job_id: str, slots: tuple[Slot, ...], *, power_limit_w: float | None = None
) -> None:
    """Start a waiting job on these slots."""
    record = _job(world, job_id)
    if record.state is not JobState.WAITING:
        raise ActionFailed(f"is {record.state.value}, not waiting", where=f"job {job_id}")
    slots = _own_slots(record, slots)
    _check_slots(world, record, slots)
    record.pending, record.released = "started", False
    _sit(world, record, slots, START_S, power_limit_w)


def move(
    world: World, job_id: str, slots: tuple[Slot, ...], *, power_limit_w: float | None = None
) -> None:
    """Carry a running job over to these slots."""
    record = _job(world, job_id)
    if record.state not in (JobState.RUNNING, JobState.MOVING):
        raise ActionFailed(f"is {record.state.value}, not running", where=f"job {job_id}")
    if not record.demand.job.movable:
        raise ActionFailed("cannot be moved", where=f"job {job_id}")
    slots = _own_slots(record, slots)
    _check_slots(world, record, slots)
    if {place.slot for place in record.places} == set(slots):
        record.limit_w = power_limit_w
        world.touch(record)
        return
    if record.demand.job.mode is Mode.SPREAD:
        _spread_over(world, record, slots, power_limit_w)
        return
    began = record.started_s is not None
    life.interrupt(world, record, "moves", graceful=True)
    record.pending = "moved" if began else "started"
    record.moves += 1
    record.moved_s = world.now_s
    world.totals.moves += 1
    _sit(world, record, slots, MOVE_S, power_limit_w)


def hold(world: World, job_id: str) -> None:
    """Stop a job and let it wait."""
    record = _job(world, job_id)
    record.released = False
    if record.places:
        life.interrupt(world, record, "held", graceful=True)
        record.stops += 1
        world.totals.stops += 1


def release(world: World, job_id: str) -> None:
    """Let the cluster's own first-come-first-served scheduler have the job."""
    _job(world, job_id).released = True


def switch(world: World, server_id: str, *, on: bool) -> None:
    """Switch a server on or off; an occupied one stays on."""
    record = _server(world, server_id)
    if record.power is PowerState.DOWN:
        raise ActionFailed("does not answer", where=f"server {server_id}")
    if on and record.power in (PowerState.OFF, PowerState.SWITCHING_OFF):
        world.begin_switch(record, PowerState.SWITCHING_ON, world.now_s + SWITCH_ON_S)
    elif not on and record.power in (PowerState.ON, PowerState.SWITCHING_ON):
        if world.floor.occupied(server_id):
            users = [job for spot in world.floor.on_server(server_id) for job, _ in spot.seats]
            first = min(users, key=lambda job: job.number)
            raise ActionFailed(f"{first.id} runs there", where=f"server {server_id}")
        world.begin_switch(record, PowerState.SWITCHING_OFF, world.now_s + SWITCH_OFF_S)


def limit(world: World, server_id: str, gpu: int, watts: float) -> None:
    """Limit what one GPU may draw; the vendor's range is kept."""
    record = _server(world, server_id)
    if not 0 <= gpu < record.server.gpus:
        raise ActionFailed(f"has no GPU {gpu}", where=f"server {server_id}")
    facts = hardware.get(record.server.gpu_type)
    if not facts.min_limit_w <= watts <= facts.max_w:
        raise ActionFailed(
            f"{watts:g} W is outside {facts.min_limit_w:g} to {facts.max_w:g} W",
            where=f"server {server_id} GPU {gpu}",
        )
    record.limits[gpu] = watts
    world.touch_server(record)


def fault(world: World, kind: str, target: str) -> None:
    """Let something break: see FAULTS for what each kind takes as target."""
    if kind not in FAULTS:
        raise InvalidInput(f"fault {kind!r} is not known", todo=f"known: {', '.join(FAULTS)}")
    FAULTS[kind](world, target)


def _gpu_dies(world: World, target: str) -> None:
    server_id, _, index = target.rpartition("/")
    record = _server(world, server_id or target)
    if not index.isdigit() or int(index) >= record.server.gpus:
        raise InvalidInput(f"{target!r} names no GPU", todo="write server/index, such as v100-01/3")
    gpu = int(index)
    if gpu not in record.dead:
        record.dead = sorted([*record.dead, gpu])
    for job in list(world.jobs.values()):
        hit = [p for p in job.places if p.server == record.server.id and gpu in p.gpus]
        if hit:
            _lose(world, job, hit, f"GPU {target} died")
    world.touch_server(record)


def _server_vanishes(world: World, target: str) -> None:
    record = _server(world, target)
    record.power, record.since_s = PowerState.DOWN, world.now_s
    for job in list(world.jobs.values()):
        hit = [place for place in job.places if place.server == target]
        if hit:
            _lose(world, job, hit, f"server {target} vanished")
    world.touch_server(record)


def _server_returns(world: World, target: str) -> None:
    record = _server(world, target)
    record.dead, record.silent = [], False
    world.touch_server(record)
    if record.power is PowerState.DOWN:
        world.begin_switch(record, PowerState.SWITCHING_ON, world.now_s + SWITCH_ON_S)


def _job_crashes(world: World, target: str) -> None:
    life.end(world, _job(world, target), JobState.FAILED, "failed", "crashed")


def _telemetry_stops(world: World, target: str) -> None:
    chosen = list(world.servers.values()) if target == "all" else [_server(world, target)]
    for record in chosen:
        record.silent = True


FAULTS: dict[str, Callable[[World, str], None]] = {
    "gpu_dies": _gpu_dies,  # server/index
    "server_vanishes": _server_vanishes,  # server
    "job_crashes": _job_crashes,  # job
    "telemetry_stops": _telemetry_stops,  # server, or all
    "server_returns": _server_returns,  # server: repaired, telemetry included
}


_ACTIONS: dict[str, Callable[..., None]] = {
    "place": place,
    "move": move,
    "hold": hold,
    "release": release,
    "switch": switch,
    "limit": limit,
    "fault": fault,
}


def _lose(world: World, job: JobRecord, hit: list[Place], why: str) -> None:
    if job.demand.job.mode is Mode.SPREAD and len(hit) < len(job.places):
        for place in hit:
            life.tell(world, job, "stopped", why, at=(place.server, place.gpus))
        life.seat(world, job, [place for place in job.places if place not in hit])
    else:
        life.interrupt(world, job, why, graceful=False)


def _job(world: World, job_id: str) -> JobRecord:
    record = world.jobs.get(job_id)
    if record is None or not record.active:
        raise ActionFailed("there is no such job any more", where=f"job {job_id}")
    return record


def _server(world: World, server_id: str) -> ServerRecord:
    record = world.servers.get(server_id)
    if record is None:
        known = ", ".join(sorted(world.servers))
        raise ActionFailed("there is no such server", where=f"server {server_id}", todo=known)
    return record


def _own_slots(record: JobRecord, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """The slots of a spread job one by one, however they were put together by server."""
    if record.demand.job.mode is not Mode.SPREAD:
        return slots
    return tuple(Slot(slot.server, (gpu,)) for slot in slots for gpu in slot.gpus)


def _check_slots(world: World, record: JobRecord, slots: tuple[Slot, ...]) -> None:
    job, where = record.demand.job, f"job {record.id}"
    if not slots:
        raise ActionFailed("no slots", where=where)
    types = set()
    for slot in slots:
        server = _server(world, slot.server)
        types.add(server.server.gpu_type)
        if server.power not in (PowerState.ON, PowerState.SWITCHING_ON):
            raise ActionFailed(f"{slot.server} is {server.power.value}", where=where)
        if max(slot.gpus) >= server.server.gpus or set(slot.gpus) & set(server.dead):
            raise ActionFailed(f"{slot.server} has no such living GPUs {slot.gpus}", where=where)
        _check_neighbours(world, record, slot)
    count = sum(len(slot.gpus) for slot in slots)
    if job.mode is Mode.SPREAD:
        if len(set(slots)) < len(slots) or any(len(slot.gpus) > 1 for slot in slots):
            raise ActionFailed("a spread job takes distinct slots of one GPU", where=where)
        if count > job.max_gpus:
            raise ActionFailed(f"takes {count} GPUs, at most {job.max_gpus} allowed", where=where)
    elif len({(slot.server, gpu) for slot in slots for gpu in slot.gpus}) < count:
        raise ActionFailed("a gang takes distinct GPUs", where=where)
    elif count not in job.gpu_counts or len(types) > 1:
        raise ActionFailed(
            f"a gang of {list(job.gpu_counts)} cannot take {count} GPUs of {sorted(types)}",
            where=where,
        )


def _check_neighbours(world: World, record: JobRecord, slot: Slot) -> None:
    job, where = record.demand.job, f"job {record.id}"
    others = [
        (other, place)
        for spot in world.floor.on_server(slot.server)
        if not set(slot.gpus).isdisjoint(spot.gpus)
        for other, place in spot.seats
        if other is not record
    ]
    if not others:
        return
    other, place = others[0]
    if len(others) > 1 or place.gpus != slot.gpus:
        names = ", ".join(sorted(found.id for found, _ in others))
        raise ActionFailed(f"{slot.server} {list(slot.gpus)} is taken by {names}", where=where)
    for one in (job, other.demand.job):
        same = job.owner == other.demand.job.owner
        if one.shareable is False or (one.shareable == "owner" and not same):
            raise ActionFailed(f"{one.id} does not share with this job", where=where)


def _sit(
    world: World,
    record: JobRecord,
    slots: tuple[Slot, ...],
    delay_s: float,
    power_limit_w: float | None,
) -> None:
    life.seat(world, record, [_place(world, record, slot, delay_s) for slot in slots])
    record.state, record.since_s = JobState.MOVING, world.now_s
    record.limit_w = power_limit_w
    record.attempt += 1


def _place(world: World, record: JobRecord, slot: Slot, delay_s: float) -> Place:
    server = world.servers[slot.server]
    begins_s = max(world.now_s, server.ready_s if server.power is not PowerState.ON else 0.0)
    record.ranks += 1
    return Place(slot.server, slot.gpus, begins_s + delay_s, rank=record.ranks - 1)


def _spread_over(
    world: World, record: JobRecord, slots: tuple[Slot, ...], power_limit_w: float | None
) -> None:
    """Replicas that stay are not disturbed; the others end, new ones begin."""
    staying = [place for place in record.places if place.slot in slots]
    for place in record.places:
        if place not in staying and (place.server, place.gpus) in record.partners:
            life.tell(world, record, "stopped", "moves", at=(place.server, place.gpus))
    kept = {place.slot for place in staying}
    new = [_place(world, record, slot, START_S) for slot in slots if slot not in kept]
    life.seat(world, record, staying + new)
    record.partners = {
        key: partner for key, partner in record.partners.items() if Slot(*key) in kept
    }
    record.limit_w = power_limit_w
    record.moves += 1
    record.moved_s = world.now_s
    world.totals.moves += 1
    if not staying:
        record.state, record.pending, record.since_s = JobState.MOVING, "moved", world.now_s
