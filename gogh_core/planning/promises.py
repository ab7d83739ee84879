"""What each job is promised, what its waiting costs, and what more than the promise is worth."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gogh_core.domain import Job, JobKind, JobStatus, Mode
from gogh_core.planning.request import Objective
from gogh_core.planning.ways import Rates, Ways
from gogh_core.settings import Settings

__all__ = ["Promise", "for_deadline", "promise", "waiting_priority"]

RUNNING_FACTOR = 2.0
"""A running job's waiting costs this much more, so that jobs do not take turns all the time."""
MAX_DOUBLINGS = 10.0
"""A thousand times the priority is enough for anybody, and keeps the objective readable."""
DEADLINE_MARGIN = 1.05
"""A deadline is planned to be met with this much to spare: starts and moves take time too."""
SPEED_WORTH = 4.0
"""Objective `throughput`: a step of best effort is worth this many times its cheapest energy."""


def waiting_priority(status: JobStatus, settings: Settings, now: datetime) -> float:
    """What waiting costs this job: more the longer it waits, double while it runs."""
    if status.slots:
        return status.job.priority * RUNNING_FACTOR
    since = status.since if status.since is not None else status.job.submitted_at
    waited_s = max(0.0, (now - since).total_seconds())
    doublings = min(waited_s / settings.allocation.priority_age_s, MAX_DOUBLINGS)
    return float(status.job.priority * 2.0**doublings)


def most(job: Job, rates: Rates) -> float:
    """The most a job can get, by rates for (class, GPUs)."""
    if job.mode is Mode.SPREAD:
        return job.max_gpus * rates.get((job.job_class, 1), 0.0)
    return max((rates.get((job.job_class, m), 0.0) for m in job.gpu_counts), default=0.0)


def cheapest_step_j(job: Job, ways: Ways) -> float:
    """Energy of one step on the job's most efficient option; 0 when it has none."""
    counts = (1,) if job.mode is Mode.SPREAD else job.gpu_counts
    keys = [(job.job_class, count) for count in counts]
    return min((ways.step_j[key] for key in keys if key in ways.step_j), default=0.0)


@dataclass(frozen=True, slots=True)
class Promise:
    """What a job must get, what a step beyond is worth, and what is worth telling."""

    required_throughput: float
    surplus_j_per_step: float
    note: str = ""


def promise(status: JobStatus, ways: Ways, objective: Objective, now: datetime) -> Promise:
    """What the plan owes this job in this window."""
    job = status.job
    surely = most(job, ways.surely)
    required, note = job.required_throughput, ""
    needed = for_deadline(status, now)
    if needed is not None and needed > surely:
        note = (
            f"job {job.id} cannot surely meet its deadline: needs {needed:.3g} {job.unit}, but "
            f"surely gets {surely:.3g} at most; it runs as best effort"
        )
    elif needed is not None:
        required = max(required, needed)
    if required > surely > 0 and most(job, ways.likely) >= required:
        note = (
            f"job {job.id} is promised {required:.3g} {job.unit}: its best option likely gives "
            f"that, but surely only {surely:.3g}"
        )
        required = surely * (1 - 1e-9)
    surplus = job.surplus_j_per_step
    if required <= 0 and surplus <= 0 and job.descriptors.kind is JobKind.TRAINING:
        surplus = cheapest_step_j(job, ways) * (SPEED_WORTH if objective == "throughput" else 1.0)
    return Promise(required, surplus, note)


def for_deadline(status: JobStatus, now: datetime) -> float | None:
    """Steps left over seconds left; None without a deadline, infinite when it has passed."""
    job = status.job
    if job.deadline_at is None or job.total_steps is None:
        return None
    steps = max(0.0, job.total_steps - status.steps_done)
    seconds = (job.deadline_at - now).total_seconds()
    if steps <= 0:
        return 0.0
    return DEADLINE_MARGIN * steps / seconds if seconds > 0 else float("inf")
