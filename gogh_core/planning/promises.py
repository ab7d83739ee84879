"""What each job is promised, what its waiting costs, and what more than the promise is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gogh_core.domain import JobStatus, Mode
from gogh_core.planning.objectives import Later, Outlook, rates, steps_left, work_of, worth
from gogh_core.planning.ways import Rate, Ways
from gogh_core.settings import Settings

__all__ = [
    "ANYWHERE",
    "DEADLINE_MARGIN",
    "ENOUGH",
    "WITHOUT_MARGIN",
    "Promise",
    "for_deadline",
    "promise",
    "rates",
    "some",
    "steps_left",
    "told",
    "waiting_priority",
]

WITHOUT_MARGIN, ANYWHERE = 1, 2
"""How far a promise is let go for a job that would wait otherwise."""
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


@dataclass(frozen=True, slots=True)
class Promise:
    """What the plan asks of a job's place, and what a step beyond is worth.

    `kind`: `sure` (the promise and the margin), `tight` (the promise, without the margin), `short`
    (nothing keeps it, so it gets nearly the best there is), `late` (its deadline cannot be met,
    best effort).
    """

    required_throughput: float
    surplus_j_per_step: float
    kind: Literal["sure", "tight", "short", "late"] = "sure"
    promised: float = 0.0
    """What was really promised, or the deadline needs; the plan may ask for less or more."""
    rests: bool = False
    """Whether the guards leave the job where it is."""
    later: Later | None = None
    """Set where the job waits by choice: its hours are cheaper, and nothing is owed to it now."""


def promise(
    status: JobStatus,
    ways: Ways,
    outlook: Outlook,
    now: datetime,
    *,
    margin: float = 0.0,
    missed_w: float = 0.0,
    here: Rate | None = None,
    relax: int = 0,
    stays: bool = False,
    rests: bool = False,
    step_worth: float = float("inf"),
    may_wait: bool = False,
) -> Promise:
    """What the plan owes this job in this window.

    `margin` is what a new place has to give beyond the promise, because estimates err; a place that
    keeps the promise without it is good enough to stay `here`. `relax`: somebody found no place.
    Then a job that runs may stay where it falls short, and each step that another place gives is
    worth more by what missing the promise costs (`missed_w`): it moves where that pays and is never
    stopped for being slow. A job that waits does without the margin (`WITHOUT_MARGIN`), or with any
    place (`ANYWHERE`). `stays`: it cannot move, so what it gets has to do. `rests`: the guards
    would leave it alone; they do where it gets nearly its promise, or nearly the best there is.
    `step_worth`: a declared worth counts up to so many times what a step is worth here. `may_wait`:
    it may wait for hours in which the `outlook` has it cheaper.
    """
    job = status.job
    best = max((rate.mean for rate in rates(job, ways)), default=0.0)
    promised = job.required_throughput
    needed = for_deadline(status, now)
    late = needed is not None and needed > best
    if needed is not None and not late:
        promised = max(promised, needed)
    required, kind = _owed(promised, best, margin, relax)
    value = worth(outlook, work_of(status, ways, outlook, most=step_worth))
    surplus = value.step_j
    if value.later is not None and may_wait and not late:
        return Promise(0.0, surplus, rests=rests, later=value.later)
    spread = job.mode is Mode.SPREAD
    rests = rests and (here is None or here.mean >= ENOUGH * min(promised, best))
    if here is not None and here.mean < required:
        short = here.mean < min(promised, best)
        grows = spread and short and not stays and relax < ANYWHERE
        if not grows and (relax or stays or rests or not short):
            required, kind = here.mean * _BELOW, "short" if short else "tight"
            surplus += missed_w / promised if short and not spread else 0.0
    elif relax == ANYWHERE:
        # Replicas without requests to answer would be none at all.
        required, kind = (0.5 * required if spread else 0.0), "short"
        surplus += missed_w / promised if promised > 0 and not spread else 0.0
    return Promise(required, surplus, "late" if late else kind, promised, rests)


def _owed(
    promised: float, best: float, margin: float, relax: int
) -> tuple[float, Literal["sure", "tight", "short"]]:
    """The promise with its margin where a place gives that, else the promise, else nearly all."""
    if promised <= 0 or best <= 0:
        return promised, "sure"
    if not relax and promised * (1 + margin) <= best:
        return promised * (1 + margin), "sure"
    return (promised, "tight") if promised <= best else (NEAR_BEST * best, "short")


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
    "tight": "no free place keeps the promise with its margin, of",
    "short": "no place keeps the promise, what comes near will do, for",
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
