"""Who comes to the embedded cluster, when, and with what promise.

Arrival k depends on the seed and on k only, so that every policy meets the same jobs. `Demand` is a
job as it was drawn: the asked-for `Job` and what only the simulation knows of it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from gogh_core.domain import Descriptors, Job, JobKind, Mode, utc
from gogh_core.simulation.classes import CLASSES, JobClass
from gogh_core.simulation.truth import Truth

__all__ = [
    "CHECKPOINT_S",
    "MOVE_S",
    "Arrivals",
    "Demand",
    "ListedSource",
    "Source",
    "demand_from",
    "demand_to",
    "peak_rate",
    "quarter_begins_s",
    "quarter_of",
    "request_rate",
]

CHECKPOINT_S = 300
MOVE_S = 60
_TYPICAL_W = 180.0  # of one GPU, for what a move costs
_OWNERS = ("vision", "language", "speech", "ranking", "robotics", "students")
_SHAREABLE: tuple[bool | Literal["owner"], ...] = (True, "owner", False)
_WAVE = 0.45  # request rates rise and fall by this share over the day
_RATE_STEP_S = 900  # request rates are set anew each quarter of an hour
_AT_START = 1.5  # jobs for each server that are there when the clock begins


@dataclass(frozen=True, slots=True)
class Demand:
    """A job as it was drawn."""

    job: Job
    arrives_s: float
    """Seconds after the clock began."""
    graceful: bool = True
    """Writes a checkpoint when told to stop; the others lose what they did since the last one."""
    base_rate: float | None = None
    """Mean request rate over the day, of inference jobs."""
    phase_h: float = 0.0
    lasts_s: float | None = None
    """How long a service runs after it first started; jobs with `total_steps` end by themselves."""


def request_rate(demand: Demand, at: datetime) -> float:
    """Requests per second that come now: a day's wave, in steps of a quarter of an hour."""
    if demand.base_rate is None:
        return demand.job.required_throughput
    seconds = at.hour * 3600 + at.minute * 60 + at.second
    hour = (seconds // _RATE_STEP_S) * _RATE_STEP_S / 3600
    wave = 1.0 + _WAVE * math.sin(2 * math.pi * (hour - demand.phase_h) / 24)
    return round(demand.base_rate * wave, 6)


def quarter_of(start: datetime, now_s: float) -> int:
    """The quarter of an hour, counted from the one in which the clock began."""
    return math.floor((now_s + _past_quarter_s(start) + 1e-6) / _RATE_STEP_S)


def quarter_begins_s(start: datetime, quarter: int) -> float:
    """When a quarter of an hour begins and request rates are set anew."""
    return quarter * _RATE_STEP_S - _past_quarter_s(start)


def _past_quarter_s(start: datetime) -> float:
    return (start.minute * 60 + start.second + start.microsecond / 1e6) % _RATE_STEP_S


def peak_rate(demand: Demand) -> float:
    """The most that can be asked of the job in a day."""
    if demand.base_rate is None:
        return demand.job.required_throughput
    return demand.base_rate * (1.0 + _WAVE)


class Arrivals:
    """The embedded cluster's own crowd: seeded, and without end."""

    def __init__(
        self,
        truth: Truth,
        types: Sequence[str],
        *,
        start: datetime,
        seed: int,
        servers: int,
        per_hour: float,
    ) -> None:
        self._truth = truth
        self._types = tuple(dict.fromkeys(types))
        self._start = start
        self._seed = seed
        self._at_start = round(servers * _AT_START)
        self._per_hour = per_hour

    def draw(self, number: int, previous_s: float) -> Demand | None:
        """Arrival `number` (from 0), given when the one before it came."""
        rng = random.Random(f"gogh/{self._seed}/arrival/{number}")
        first = number < self._at_start
        gap_s = 0.0 if first else rng.expovariate(self._per_hour / 3600)
        arrives_s = round(previous_s + gap_s, 3)
        at = self._start + timedelta(seconds=arrives_s)
        name = f"j{number + 1:05d}"
        demand = _drawn(rng, self._truth, self._types, id=name, at=at, first=first)
        return replace(demand, arrives_s=arrives_s)


class Source(Protocol):
    """Where jobs come from."""

    def draw(self, number: int, previous_s: float) -> Demand | None:
        """Arrival `number`, or None when nobody comes any more."""
        ...


class ListedSource:
    """Jobs from a list, in order of arrival."""

    def __init__(self, demands: Sequence[Demand], *, mark: str | None = None) -> None:
        self._demands = demands
        self.mark = mark
        """Tells this list from others, so that a saved run is resumed with its own jobs only."""

    def draw(self, number: int, previous_s: float) -> Demand | None:
        """Arrival `number` of the list."""
        return self._demands[number] if number < len(self._demands) else None


@dataclass(frozen=True, slots=True)
class _Draw:
    """What is drawn of a job before its kind matters."""

    rng: random.Random
    id: str
    owner: str
    at: datetime
    entry: JobClass
    had: float
    """Throughput alone on the GPU type its user had in mind."""
    usual: float
    """Throughput alone on a middling GPU type."""


def _drawn(
    rng: random.Random, truth: Truth, types: Sequence[str], *, id: str, at: datetime, first: bool
) -> Demand:
    entry = _class(rng, truth, types, services=0.25 if first else 0.06)
    best = {
        name: run.throughput[0]
        for name in types
        if (run := truth.run(name, 1, (entry.name,))) is not None
    }
    # The fastest type is seldom the one that was promised.
    ranked = sorted(best, key=lambda name: (best[name], name))
    had = best[ranked[min(int(rng.triangular(0, len(ranked), len(ranked) * 0.4)), len(ranked) - 1)]]
    draw = _Draw(rng, id, rng.choice(_OWNERS), at, entry, had, best[ranked[len(ranked) // 2]])
    serves = entry.descriptors.kind is JobKind.INFERENCE
    demand = _service(draw) if serves else _training(draw)
    told = entry.descriptors
    if not entry.declares:
        told = replace(told, flops_per_step=None, bytes_per_step=None, memory_bytes=None)
    return replace(demand, job=replace(demand.job, descriptors=told))


def _class(rng: random.Random, truth: Truth, types: Sequence[str], *, services: float) -> JobClass:
    wanted = JobKind.INFERENCE if rng.random() < services else JobKind.TRAINING
    known = [CLASSES.get(name) or _unknown(name) for name in truth.classes()]
    runs = [
        entry
        for entry in known
        if any(truth.run(name, 1, (entry.name,)) is not None for name in dict.fromkeys(types))
    ]
    fitting = [entry for entry in runs if entry.descriptors.kind is wanted] or runs
    return rng.choices(fitting, weights=[entry.weight for entry in fitting])[0]


def _unknown(name: str) -> JobClass:
    """A class of a throughput table: nothing is known of it but its name."""
    model, mark, rest = name.rpartition(" (batch size ")
    batch = int(rest.rstrip(")")) if mark and rest.rstrip(")").isdigit() else None
    return JobClass(Descriptors(model if batch is not None else name, batch), 0.0, 0.0, 1.0)


def _training(draw: _Draw) -> Demand:
    rng, entry = draw.rng, draw.entry
    length_s = min(max(rng.lognormvariate(math.log(2400), 0.8), 480), 18_000)
    total = round(draw.usual * length_s, 1)
    effort = rng.random() < 0.22
    required = 0.0 if effort else round(draw.had * rng.uniform(0.45, 0.9), 6)
    late = rng.random() < 0.2 and required > 0
    wanted_s = round(1.3 * total / required + 1200) if required else 0
    counts = rng.choices([(1,), (1, 2), (2,), (4,)], weights=[80, 12, 6, 2])[0]
    shareable = rng.choices(_SHAREABLE, weights=[8, 1, 1])[0]
    job = Job(
        id=draw.id,
        name=f"{entry.descriptors.model} by {draw.owner}",
        descriptors=entry.descriptors,
        submitted_at=draw.at,
        owner=draw.owner,
        gpu_counts=counts,
        max_gpus=max(counts),
        required_throughput=required,
        total_steps=total * min(counts),
        deadline_at=draw.at + timedelta(seconds=wanted_s) if late else None,
        priority=0.5 if effort else rng.choice([1.0, 1.0, 1.0, 2.0]),
        shareable=shareable,
        movable=rng.random() < 0.92,
        move_cost_j=(MOVE_S + CHECKPOINT_S / 4) * _TYPICAL_W,
    )
    return Demand(job, 0.0, graceful=rng.random() < 0.75)


def _service(draw: _Draw) -> Demand:
    rng, entry = draw.rng, draw.entry
    most = rng.choice([2, 3, 4, 6])
    base = round(min(draw.had, draw.usual) * most * rng.uniform(0.25, 0.5), 6)
    demand = Demand(
        Job(
            id=draw.id,
            name=f"{entry.descriptors.model} by {draw.owner}",
            descriptors=entry.descriptors,
            submitted_at=draw.at,
            owner=draw.owner,
            mode=Mode.SPREAD,
            max_gpus=most,
            required_throughput=base,
            unit="requests/s",
            priority=2.0,
            shareable=rng.random() < 0.8,
            move_cost_j=MOVE_S * _TYPICAL_W,
        ),
        0.0,
        base_rate=base,
        phase_h=rng.uniform(7, 11),
        lasts_s=round(min(max(rng.lognormvariate(math.log(21_600), 0.6), 3600), 172_800)),
    )
    return replace(
        demand, job=replace(demand.job, required_throughput=request_rate(demand, draw.at))
    )


def demand_to(demand: Demand) -> dict[str, Any]:
    """As it stands in the state on disk."""
    job = demand.job
    told = job.descriptors
    raw: dict[str, Any] = {
        name: getattr(job, name)
        for name in [
            "id",
            "owner",
            "name",
            "max_gpus",
            "required_throughput",
            "unit",
            "total_steps",
            "priority",
            "shareable",
            "movable",
            "move_cost_j",
            "surplus_j_per_step",
        ]
    }
    raw["mode"] = job.mode.value
    raw["gpu_counts"] = list(job.gpu_counts)
    raw["submitted_at"] = job.submitted_at.isoformat()
    raw["deadline_at"] = job.deadline_at.isoformat() if job.deadline_at else None
    raw["descriptors"] = {
        name: getattr(told, name)
        for name in [
            "model",
            "batch_size",
            "family",
            "precision",
            "parameters",
            "flops_per_step",
            "bytes_per_step",
            "memory_bytes",
        ]
    } | {"kind": told.kind.value}
    own = {
        name: getattr(demand, name)
        for name in ("arrives_s", "graceful", "base_rate", "phase_h", "lasts_s")
    }
    return {"job": raw, **own}


def demand_from(raw: dict[str, Any]) -> Demand:
    """From the state on disk."""
    own = dict(raw)
    job = dict(own.pop("job"))
    told = dict(job.pop("descriptors"))
    told["kind"] = JobKind(told["kind"])
    deadline = job.pop("deadline_at")
    return Demand(
        Job(
            descriptors=Descriptors(**told),
            mode=Mode(job.pop("mode")),
            gpu_counts=tuple(job.pop("gpu_counts")),
            submitted_at=utc(datetime.fromisoformat(job.pop("submitted_at"))),
            deadline_at=utc(datetime.fromisoformat(deadline)) if deadline else None,
            **job,
        ),
        **own,
    )
