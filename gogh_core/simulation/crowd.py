"""A world of any size whose jobs are drawn at random: for measurements of the simulation itself.

The servers are of the six GPU types of the embedded cluster in turn. Jobs are gangs of one to eight
GPUs, their lengths log-normal, and they come so fast that the work they bring is `load` times what
the cluster can do in the time in which they come.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import fmean

from gogh_core.domain import Job, JobKind, Server
from gogh_core.simulation.arrivals import Demand, ListedSource
from gogh_core.simulation.classes import CLASSES
from gogh_core.simulation.site import BASE_W
from gogh_core.simulation.truth import PhysicalTruth
from gogh_core.simulation.world import World

__all__ = ["crowd"]

_START = datetime(2026, 1, 5, tzinfo=UTC)
_SIZES, _SHARES = (1, 2, 4, 8), (70, 12, 10, 8)
_TYPICAL_S, _SPREAD = 3000.0, 1.0
_PROMISE = 0.4


def crowd(jobs: int, servers: int, *, load: float = 1.0, seed: int = 0) -> tuple[World, float]:
    """So many jobs on so many servers of eight GPUs, and when the last of them comes."""
    types = tuple(BASE_W)
    room = [
        Server(f"{types[n % len(types)]}-{n:04d}", types[n % len(types)], 8, 300.0, 6.0)
        for n in range(servers)
    ]
    truth = PhysicalTruth(CLASSES, seed)
    rng = random.Random(f"gogh/crowd/{seed}")
    names = sorted(
        name
        for name, entry in CLASSES.items()
        if entry.descriptors.kind is JobKind.TRAINING
        and all(truth.run(kind, 8, (name,)) is not None for kind in types)
    )
    usual = {name: _usual(truth, types, name) for name in names}
    drawn = [_draw(rng, names, usual, f"j{number:06d}") for number in range(jobs)]
    work_s = sum((demand.job.total_steps or 0.0) / usual[demand.job.job_class] for demand in drawn)
    speeds = {
        kind: fmean(_alone(truth, kind, name) / usual[name] for name in names) for kind in types
    }
    able = sum(8 * speeds[server.gpu_type] for server in room)
    span_s = work_s / (able * load)
    times = sorted(rng.uniform(0.0, span_s) for _ in drawn)
    demands = [
        replace(
            demand,
            job=replace(demand.job, submitted_at=_START + timedelta(seconds=at_s)),
            arrives_s=at_s,
        )
        for demand, at_s in zip(drawn, times, strict=True)
    ]
    world = World(room, truth, ListedSource(demands), start=_START, seed=seed, alike=True)
    return world, times[-1]


def _draw(rng: random.Random, names: Sequence[str], usual: dict[str, float], name: str) -> Demand:
    kind = rng.choice(names)
    count = rng.choices(_SIZES, weights=_SHARES)[0]
    length_s = rng.lognormvariate(math.log(_TYPICAL_S), _SPREAD)
    job = Job(
        id=name,
        descriptors=CLASSES[kind].descriptors,
        submitted_at=_START,
        gpu_counts=(count,),
        max_gpus=count,
        required_throughput=_PROMISE * usual[kind] * count,
        total_steps=usual[kind] * count * length_s,
    )
    return Demand(job, 0.0)


def _alone(truth: PhysicalTruth, gpu_type: str, name: str) -> float:
    run = truth.run(gpu_type, 1, (name,))
    return run.throughput[0] if run is not None else 0.0


def _usual(truth: PhysicalTruth, types: Sequence[str], name: str) -> float:
    rates = sorted(_alone(truth, kind, name) for kind in types)
    return rates[len(rates) // 2]
