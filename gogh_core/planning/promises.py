"""What each job is promised, what its waiting costs, and what more than the promise is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gogh_core.domain import Job, JobKind, JobStatus, Mode
from gogh_core.planning.request import Objective
from gogh_core.planning.ways import Rate, Ways
from gogh_core.settings import Settings

__all__ = [
    "DEADLINE_MARGIN",
    "Promise",
    "for_deadline",
    "promise",
    "rates",
    "some",
    "steps_left",
    "told",
    "waiting_priority",
]

RUNNING_FACTOR = 2.0
"""A running job's waiting costs this much more, so that jobs do not take turns all the time."""
MAX_DOUBLINGS = 10.0
"""A thousand times the priority is enough for anybody, and keeps the objective readable."""
NEAR_BEST = 0.8
"""What a job gets at least, of the best there is, when nothing keeps its promise."""
ENOUGH = 0.95
"""A job that likely gets this much of its promise is left alone by the guards; others may move."""
_BELOW = 1 - 1e-9
_SHOWN = 8
DEADLINE_MARGIN = 1.05
"""A deadline is planned to be met with this much to spare: starts and moves take time too."""
SPEED_WORTH = 4.0
"""Objective `throughput`: a step of best effort is worth this many times its cheapest energy."""


def waiting_priority(
    status: JobStatus, settings: Settings, now: datetime, *, guarded: float = 0.0
) -> float:
    """What waiting costs this job: more the longer it waits, double while it runs.

    `guarded` is the least priority that a running job has against those of other owners.
    """
    if status.slots:
        return max(status.job.priority, guarded) * RUNNING_FACTOR
    since = status.since if status.since is not None else status.job.submitted_at
    waited_s = max(0.0, (now - since).total_seconds())
    doublings = min(waited_s / settings.allocation.priority_age_s, MAX_DOUBLINGS)
    return float(status.job.priority * 2.0**doublings)


def rates(job: Job, ways: Ways) -> list[Rate]:
    """What the job gets alone, by GPU type and number; a spread job: on all its GPUs."""
    if job.mode is Mode.SPREAD:
        return [
            Rate(rate.gpu_type, job.max_gpus * rate.surely, job.max_gpus * rate.likely)
            for rate in ways.alone.get((job.job_class, 1), ())
        ]
    counts = sorted(set(job.gpu_counts))
    return [rate for count in counts for rate in ways.alone.get((job.job_class, count), ())]


def cheapest_step_j(job: Job, ways: Ways) -> float:
    """Energy of one step on the job's most efficient option; 0 when it has none."""
    counts = (1,) if job.mode is Mode.SPREAD else job.gpu_counts
    keys = [(job.job_class, count) for count in counts]
    return min((ways.step_j[key] for key in keys if key in ways.step_j), default=0.0)


@dataclass(frozen=True, slots=True)
class Promise:
    """What a job must get at the chosen confidence, and what a step beyond is worth.

    `kind`: `sure` (as promised), `likely` (only the average keeps it), `short` (nothing keeps it,
    so it gets nearly the best there is), `late` (its deadline cannot be met, best effort).
    """

    required_throughput: float
    surplus_j_per_step: float
    kind: Literal["sure", "likely", "short", "late"] = "sure"
    promised: float = 0.0
    """What was really promised, or the deadline needs; `required_throughput` may be less."""


def promise(
    status: JobStatus,
    ways: Ways,
    objective: Objective,
    now: datetime,
    *,
    here: Rate | None = None,
    relax: bool = False,
    stays: bool = False,
    rests: bool = False,
    step_worth: float = float("inf"),
) -> Promise:
    """What the plan owes this job in this window.

    `here` is what it gets where it runs: a place that likely keeps the promise is good enough to
    stay. `relax`: the job found no place that surely keeps it, so a likely one will do, or the one
    it has. `stays`: it cannot be moved, so whatever it gets there has to do. `rests`: the guards
    would leave it alone, so that nearly its promise, or nearly the best there is, has to do.
    `step_worth`: a step is worth no more than so many times its cheapest energy.
    """
    job = status.job
    every = rates(job, ways)
    best = max((rate.surely for rate in every), default=0.0)
    most = max((rate.likely for rate in every), default=0.0)
    required = job.required_throughput
    kind: Literal["sure", "likely", "short", "late"] = "sure"
    needed = for_deadline(status, now)
    late = needed is not None and needed > most
    if needed is not None and not late:
        required = max(required, needed)
    promised = required
    if required > 0 and best > 0:
        if here is not None and here.surely < required:
            rests = rests and here.likely >= ENOUGH * min(required, most)
            if stays or relax or rests or required <= here.likely:
                kind = "likely" if required <= here.likely else "short"
                will_do = _relaxed(job, required, every, best)[0] if relax else required
                required = min(will_do, here.surely * _BELOW)
        if kind == "sure" and (relax or required > best):
            required, kind = _relaxed(job, required, every, best)
    surplus = job.surplus_j_per_step
    if surplus > 0 and math.isfinite(step_worth):
        surplus = min(surplus, step_worth * cheapest_step_j(job, ways))
    if required <= 0 and surplus <= 0 and job.descriptors.kind is JobKind.TRAINING:
        surplus = cheapest_step_j(job, ways) * (SPEED_WORTH if objective == "throughput" else 1.0)
    return Promise(required, surplus, "late" if late else kind, promised)


def _relaxed(
    job: Job, required: float, every: Sequence[Rate], best: float
) -> tuple[float, Literal["sure", "likely", "short"]]:
    """A requirement that admits what likely keeps the promise, or else what comes nearest."""
    likely = [rate for rate in every if rate.likely >= required]
    if not likely:
        return NEAR_BEST * best, "short"
    if job.mode is Mode.SPREAD:
        # Its slots add up over types: the sum is taken down by the widest of their intervals.
        lowest = required * min(rate.surely / rate.likely for rate in every if rate.likely > 0)
    else:
        lowest = min(rate.surely for rate in likely)
    return (required, "sure") if lowest >= required else (lowest * _BELOW, "likely")


def steps_left(status: JobStatus) -> float | None:
    """Steps the job has still to do; None where it was not said how many there are."""
    total = status.job.total_steps
    return None if total is None else max(0.0, total - status.steps_done)


def for_deadline(status: JobStatus, now: datetime) -> float | None:
    """Steps left over seconds left; None without a deadline, infinite when it has passed."""
    job, steps = status.job, steps_left(status)
    if job.deadline_at is None or steps is None:
        return None
    seconds = (job.deadline_at - now).total_seconds()
    if steps <= 0:
        return 0.0
    return DEADLINE_MARGIN * steps / seconds if seconds > 0 else float("inf")


_TOLD = {
    "likely": "only the average keeps the promise of",
    "short": "nothing keeps the promise, nearly the best there is will do, for",
    "late": "the deadline cannot be met, best effort, for",
}


def told(kinds: Mapping[str, str]) -> list[str]:
    """One line for each kind of promise that is not sure, with the jobs it is about."""
    lines = []
    for kind, text in _TOLD.items():
        names = sorted(name for name, which in kinds.items() if which == kind)
        if names:
            lines.append(f"{text} {some(names)}")
    return lines


def some(names: Sequence[str]) -> str:
    """The first names of a list that may be long, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
