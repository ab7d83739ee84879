"""What a plan minimises: one function, `worth`, of the same form for every objective.

A plan's cost is in watts. Every objective gives two weights: of a joule drawn in this window
(`now`) and of a joule that the same work would draw later (`then`). A step that costs c joules
where the job runs well is worth c · then / now joules when it is done in this window:

| objective | now | then |
|---|---|---|
| `energy` | 1 | 1: a step done now need not be done later |
| `watts` | 1 | 0: only the draw of this window counts |
| `throughput` | 1 | `SPEED_WORTH`: speed is worth some times its energy |
| `cost`, `carbon` | the curve in this window | the dearest of the cheapest hours that suffice |

docs/objectives.md derives this. `Aim` is an objective with its curve, `Outlook` what the curve says
from now on, `Work` what is left of a job, `Worth` the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal

import numpy as np

from gogh_core.domain import Job, JobKind, JobStatus, Mode
from gogh_core.planning.curves import Curve, Floats
from gogh_core.planning.ways import Rate, Ways

__all__ = [
    "OBJECTIVES",
    "Aim",
    "Later",
    "Objective",
    "Outlook",
    "Work",
    "Worth",
    "crowding",
    "rates",
    "step_worth_j",
    "steps_left",
    "work_of",
    "worth",
]

Objective = Literal["energy", "watts", "throughput", "cost", "carbon"]
OBJECTIVES: tuple[Objective, ...] = ("energy", "watts", "throughput", "cost", "carbon")

MOST_OVER_CHEAPEST = 1.5
"""A step is worth no more than this many times its energy on the cheapest GPU type."""
SPEED_WORTH = 4.0
"""Objective `throughput`: a step is worth this many times its cheapest energy. Under `cost` and
`carbon` a step is worth no more than this either, however cheap this window is."""
LEAST_GAIN = 0.05
"""Jobs wait for hours that are cheaper by at least this share; stopping and starting cost too."""
LATEST_START = 1.5
"""A job starts while this many times the time it needs is left, and `SPARE_WINDOWS` beside."""
SPARE_WINDOWS = 2
LONGEST_DAYS = 14
"""Nothing is shifted further than this."""
_DIGITS = 9


@dataclass(frozen=True)
class Aim:
    """An objective, and the curve it goes by."""

    name: Objective = "energy"
    curve: Curve | None = None
    horizon_s: float = 86_400.0
    """Best effort without a deadline waits for cheaper hours for so long in all."""
    notes: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    """What this objective had to do without."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is left of a job, as far as it matters for when it is done."""

    step_j: float
    """What a step costs where the job runs well."""
    declared_j: float = 0.0
    """What its owner says a step is worth, as far as that counts."""
    goes_on: bool = True
    """Whether steps that are not done now are done later; requests are not."""
    left_s: float | None = None
    """How long the rest takes at a usual place; None: nobody knows."""
    until: datetime | None = None
    """When it has to be done; None: it is not shifted in time."""


@dataclass(frozen=True, slots=True)
class Later:
    """Hours in which the rest of a job costs less."""

    price: float
    """Of the hours that suffice, on average."""
    instead_of: float
    unit: str
    begins_at: datetime
    wait_s: float

    @property
    def reason(self) -> str:
        """Such as `it waits for cheaper hours: 0.11 instead of 0.31 per kWh from 02:00 UTC`."""
        what = "cleaner" if self.unit.startswith("g") else "cheaper"
        far = self.wait_s >= 86_400
        when = f"{self.begins_at:%Y-%m-%d %H:%M}" if far else f"{self.begins_at:%H:%M}"
        return (
            f"it waits for {what} hours: {self.price:.3g} instead of {self.instead_of:.3g} "
            f"{self.unit} from {when} UTC"
        )


@dataclass(frozen=True, slots=True)
class Worth:
    """The weights of a joule now and later, and what a step is worth by them."""

    joules: float
    """What a step costs later."""
    now: float = 1.0
    then: float = 1.0
    later: Later | None = None
    """Set where the job does better to wait."""

    @property
    def step_j(self) -> float:
        """What a step done in this window is worth, in joules of this window."""
        return self.joules * min(round(self.then / self.now, _DIGITS), SPEED_WORTH)


@dataclass(frozen=True)
class Outlook:
    """An objective at one moment: what this window costs, and what later ones will."""

    now: datetime
    window_s: float = 300.0
    aim: Aim = field(default_factory=Aim)
    crowd: float = 1.0
    """How many jobs want each GPU: where there are more, work takes that much longer."""

    @cached_property
    def _hours(self) -> tuple[Floats, Floats, Floats] | None:
        """Beginnings and lengths in seconds from now and values, the cheapest first.

        This window is one of them, at its mean.
        """
        if self.aim.curve is None:
            return None
        end = self.now + timedelta(days=LONGEST_DAYS)
        edges, values = self.aim.curve.between(self.now, end)
        edges = edges - edges[0]
        cut = int(np.searchsorted(edges, self.window_s, side="left"))
        inside = np.diff(np.append(edges[:cut], self.window_s))
        flat = bool((values[:cut] == values[0]).all())
        mean = values[0] if flat else float(np.average(values[:cut], weights=inside))
        starts = np.concatenate([[0.0, self.window_s], edges[cut:-1]])
        values = np.concatenate([[mean, values[cut - 1]], values[cut:]])
        lengths = np.diff(np.append(starts, edges[-1]))
        order = np.argsort(values, kind="stable")
        return starts[order], lengths[order], values[order]

    @cached_property
    def price(self) -> float | None:
        """The value of the curve in this window; None without a curve."""
        hours = self._hours
        return None if hours is None else float(hours[2][int(np.argmin(hours[0]))])

    @property
    def facts(self) -> dict[str, Any]:
        """For the plan's record."""
        facts: dict[str, Any] = {"objective": self.aim.name}
        if self.aim.curve is not None and self.price is not None:
            curve = self.aim.curve
            facts["price"] = {"value": self.price, "unit": curve.unit, "source": curve.source}
            facts["price"]["curve_sha256"] = curve.sha256
        return facts

    @property
    def notes(self) -> list[str]:
        """What the plan says of it; nothing for the usual objective."""
        if self.aim.name == "energy":
            return list(self.aim.notes)
        curve = self.aim.curve
        if curve is None or self.price is None:
            return [f"objective {self.aim.name}", *self.aim.notes]
        told = f"objective {self.aim.name}: {self.price:.3g} {curve.unit} in this window"
        ended = curve.ends_at
        notes = [f"{told} ({curve.source})", *curve.notes, *self.aim.notes]
        if ended is not None and ended <= self.now:
            notes.append(f"the {curve.kind} curve ended at {ended:%Y-%m-%d %H:%M} UTC: it is old")
        return notes

    def cheapest(self, need_s: float, until: datetime) -> tuple[float, Later | None]:
        """The dearest of the cheapest hours that suffice, and those hours where now is not one.

        Time that is kept free at the end, for starts, moves and wrong estimates, does not count.
        """
        hours, price = self._hours, self.price
        if hours is None or price is None or self.aim.curve is None:
            return 1.0, None
        starts, lengths, values = hours
        spare_s = (LATEST_START - 1) * need_s + SPARE_WINDOWS * self.window_s
        end_s = (until - self.now).total_seconds() - spare_s
        usable = np.clip(np.minimum(starts + lengths, end_s) - starts, 0.0, None)
        chosen = np.cumsum(usable) - usable < need_s  # hours before these do not suffice
        chosen &= usable > 0
        if end_s <= need_s + self.window_s or not chosen.any():
            soon = values[starts < max(end_s, self.window_s)]
            return max(price, float(soon.max())), None
        last = float(values[chosen].max())
        if round(last / price, _DIGITS) > 1 - LEAST_GAIN:
            return last, None
        mean = float(np.average(values[chosen], weights=usable[chosen]))
        wait_s = float(starts[chosen].min())
        begins = self.now + timedelta(seconds=wait_s)
        return last, Later(mean, price, self.aim.curve.unit, begins, wait_s)


def worth(outlook: Outlook, work: Work) -> Worth:
    """What a step of this work is worth in this window: the one function of all objectives."""
    joules = work.declared_j
    if joules <= 0 and work.goes_on:
        joules = work.step_j
    name, price = outlook.aim.name, outlook.price
    if name == "watts":
        return Worth(joules, then=0.0)
    if name == "throughput":
        return Worth(joules, then=1.0 if work.declared_j > 0 else SPEED_WORTH)
    if name == "energy" or price is None:
        return Worth(joules)
    if work.left_s is None or work.until is None:
        return Worth(joules, price, price)
    need_s = max(outlook.window_s, work.left_s * outlook.crowd)
    return Worth(joules, price, *outlook.cheapest(need_s, work.until))


def work_of(status: JobStatus, ways: Ways, outlook: Outlook, *, most: float) -> Work:
    """What is left of this job; its owner's word on a step counts up to `most` cheapest ones.

    Only best effort is shifted in time: a promise is for every second. Without a deadline it is to
    be done the horizon of the aim after it could be done at the earliest.
    """
    job = status.job
    step_j = step_worth_j(job, ways)
    declared_j = min(job.surplus_j_per_step, most * step_j)
    goes_on = job.descriptors.kind is JobKind.TRAINING
    pace = _usual_pace(job, ways)
    left = steps_left(status)
    shifts = outlook.aim.curve is not None and goes_on and job.required_throughput <= 0
    if not shifts or left is None or pace <= 0:
        return Work(step_j, declared_j, goes_on)
    until = job.deadline_at
    if until is None:
        whole_s = LATEST_START * (job.total_steps or 0.0) / pace * outlook.crowd
        latest_s = min(whole_s + outlook.aim.horizon_s, 2.0 * LONGEST_DAYS * 86_400)
        until = job.submitted_at + timedelta(seconds=latest_s)
    return Work(step_j, declared_j, goes_on, left / pace, until)


def _usual_pace(job: Job, ways: Ways) -> float:
    """Steps per second where the job usually runs: on its second fastest GPU type, if it has two.

    The fastest one may be taken when the cheap hours come.
    """
    best: dict[str, float] = {}
    for rate in rates(job, ways):
        best[rate.gpu_type] = max(rate.mean, best.get(rate.gpu_type, 0.0))
    fastest = sorted(best.values(), reverse=True)[:2]
    return fastest[-1] if fastest else 0.0


def rates(job: Job, ways: Ways) -> list[Rate]:
    """What the job gets alone, by GPU type and number; a spread job: on all its GPUs."""
    if job.mode is Mode.SPREAD:
        return [
            Rate(rate.gpu_type, job.max_gpus * rate.low, job.max_gpus * rate.mean)
            for rate in ways.alone.get((job.job_class, 1), ())
        ]
    counts = sorted(set(job.gpu_counts))
    return [rate for count in counts for rate in ways.alone.get((job.job_class, count), ())]


def steps_left(status: JobStatus) -> float | None:
    """Steps the job has still to do; None where it was not said how many there are."""
    total = status.job.total_steps
    return None if total is None else max(0.0, total - status.steps_done)


def step_worth_j(job: Job, ways: Ways) -> float:
    """What a step done now saves later: its energy where the job runs well; 0 when it runs nowhere.

    Energy counts the GPU's share of its server's own draw: a step that is done later needs that
    too. One option whose watts are estimated far too low would make all work look cheap to put
    off, so the second cheapest GPU type speaks where there are several.
    """
    counts = (1,) if job.mode is Mode.SPREAD else job.gpu_counts
    costs: dict[str, float] = {}
    for count in counts:
        for kind, joules in ways.step_j.get((job.job_class, count), {}).items():
            costs[kind] = min(joules, costs.get(kind, joules))
    cheapest = sorted(costs.values())[:2]
    return min(cheapest[-1], MOST_OVER_CHEAPEST * cheapest[0]) if cheapest else 0.0


def crowding(jobs: Iterable[Job], gpus: int) -> float:
    """How many jobs want each GPU, at least one."""
    wanted = sum(1 if job.mode is Mode.SPREAD else min(job.gpu_counts) for job in jobs)
    return max(1.0, wanted / gpus) if gpus > 0 else 1.0
