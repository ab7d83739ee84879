"""What every running job reaches and every GPU draws at one moment of the world.

`rates_of` goes through everything there is: ticks with telemetry use it, and it is what the
tests compare the world's bookkeeping with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gogh_core import hardware
from gogh_core.domain import JobState, Mode, PowerState
from gogh_core.simulation.records import JobRecord, ServerRecord
from gogh_core.simulation.truth import Run

if TYPE_CHECKING:
    from gogh_core.simulation.world import World

__all__ = [
    "EPSILON",
    "GpuLoad",
    "Key",
    "Sharing",
    "Tick",
    "noise_of",
    "rates_of",
    "run_at",
    "sharing_of",
]

EPSILON = 1e-6
_NOISE = 0.03  # of a job's rate from tick to tick, log-normal
Key = tuple[str, tuple[int, ...]]
"""A server and GPUs of it: jobs that share have the same key."""
Sharing = dict[Key, list[JobRecord]]


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """What one GPU does now."""

    power_w: float
    utilisation: float = 0.0
    memory_mb: float = 0.0
    clock: float = 1.0
    processes: int = 0


@dataclass(slots=True)
class Tick:
    """Rates and loads of one stretch."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    """Steps per second of each running job, one entry for each place (a gang has one)."""
    loads: dict[tuple[str, int], GpuLoad] = field(default_factory=dict)
    watts: float = 0.0
    gpu_watts: float = 0.0
    busy: int = 0
    on: int = 0


def rates_of(world: World) -> Tick:
    """Rates and loads at this moment."""
    tick = Tick()
    sharing = sharing_of(world)
    for record in world.jobs.values():
        if record.state is JobState.RUNNING or record.state is JobState.MOVING:
            rates = _job_rates(world, record, sharing)
            if rates:
                tick.rates[record.id] = rates
    for (server_id, gpus), users in sharing.items():
        run = run_at(world, (server_id, gpus), users)
        if run is not None:
            load = GpuLoad(run.power_w, run.utilisation, run.memory_mb, run.clock, len(users))
            for gpu in gpus:
                tick.loads[server_id, gpu] = load
            tick.busy += len(gpus)
    for server in world.servers.values():
        _draw_power(server, tick)
    return tick


def sharing_of(world: World) -> Sharing:
    """Who really runs on each place now, in order of arrival."""
    found: Sharing = {}
    for record in world.jobs.values():
        for place in record.places:
            if place.ready_s <= world.now_s + EPSILON and record.pending is None:
                found.setdefault((place.server, place.gpus), []).append(record)
    return found


def run_at(world: World, key: Key, users: list[JobRecord]) -> Run | None:
    """What happens where these jobs run together; None: memory does not suffice."""
    server_id, gpus = key
    server = world.servers[server_id]
    limits = [server.limits[gpu] for gpu in gpus if gpu in server.limits]
    limits += [record.limit_w for record in users if record.limit_w is not None]
    count = len(gpus)
    if users[0].demand.job.mode is Mode.GANG:
        count = sum(len(place.gpus) for place in users[0].places)
    names = tuple(record.demand.job.job_class for record in users)
    return world.truth.run(server.server.gpu_type, count, names, min(limits, default=None))


def noise_of(world: World, tick: Tick) -> dict[str, float]:
    """What a tick makes of each running job's rate; it depends on the seed and the time only."""
    rng = np.random.default_rng([world.seed, 1, round(world.now_s)])
    drawn = np.exp(_NOISE * rng.standard_normal(len(tick.rates))).tolist()
    return dict(zip(tick.rates, drawn, strict=True))


def _job_rates(world: World, record: JobRecord, sharing: Sharing) -> list[float]:
    rates: list[float] = []
    if record.pending is not None:
        return rates
    for place in record.places:
        users = sharing.get((place.server, place.gpus))
        if users is None or record not in users:
            rates.append(0.0)
            continue
        run = run_at(world, (place.server, place.gpus), users)
        slowest = min(world.speed(place.server, gpu) for gpu in place.gpus)
        rates.append(run.throughput[users.index(record)] * slowest if run else 0.0)
    if record.demand.job.mode is Mode.GANG:
        return [min(rates)] if rates else rates
    return rates


def _draw_power(record: ServerRecord, tick: Tick) -> None:
    server = record.server
    if record.power is PowerState.DOWN:
        return
    if record.power is PowerState.OFF:
        tick.watts += server.off_w
        return
    tick.watts += server.base_w
    if record.power is not PowerState.ON:
        return
    idle = GpuLoad(hardware.get(server.gpu_type).idle_w)
    for gpu in range(server.gpus):
        if gpu in record.dead:
            continue
        load = tick.loads.setdefault((server.id, gpu), idle)
        tick.gpu_watts += load.power_w
        tick.watts += load.power_w
        tick.on += 1
