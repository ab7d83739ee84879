"""How much of what a job declares counts: the operator's classes of service.

Owners write priorities, the worth of a step and the cost of a move themselves. What goes beyond
the owner's class (`[service]`) is taken as the highest that the class allows, and the plan names
the job. Declarations order an owner's own jobs and the queue for free GPUs. They stop nobody
else's running job: that takes a class of a higher level, or waiting for `priority_age_s`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from gogh_core.domain import JobStatus
from gogh_core.planning.promises import some
from gogh_core.settings import ServiceClass, Settings

__all__ = ["Service"]

_CLIPPED = {
    "priority": ("max_priority", "a priority"),
    "move_cost_j": ("max_move_cost_j", "a cost of moving"),
}


@dataclass(frozen=True)
class Service:
    """The classes of this window's owners, and who waits in them."""

    classes: Mapping[str, ServiceClass]
    waiting: tuple[tuple[float, int, str], ...]
    """(priority, level, owner) of the highest job that waits, by owner; the highest first."""

    @classmethod
    def of(cls, live: Mapping[str, JobStatus], settings: Settings) -> Service:
        """What these jobs' owners are granted."""
        granted = cache(settings.service.of)
        classes = {status.job.owner: granted(status.job.owner) for status in live.values()}
        highest: dict[str, float] = {}
        for status in live.values():
            if not status.slots:
                owner = status.job.owner
                counts = min(status.job.priority, classes[owner].max_priority)
                highest[owner] = max(highest.get(owner, 0.0), counts)
        waiting = sorted(
            ((priority, classes[owner].level, owner) for owner, priority in highest.items()),
            reverse=True,
        )
        return cls(classes, tuple(waiting))

    def bounded(self, status: JobStatus) -> JobStatus:
        """The job with no more than its owner's class allows."""
        job, granted = status.job, self.classes[status.job.owner]
        beyond = {
            name: getattr(granted, limit)
            for name, (limit, _) in _CLIPPED.items()
            if getattr(job, name) > getattr(granted, limit)
        }
        return replace(status, job=replace(job, **beyond)) if beyond else status

    def step_worth(self, owner: str) -> float:
        """The most a step counts for, in energies of its cheapest one."""
        return self.classes[owner].max_step_worth

    def guarded(self, status: JobStatus) -> float:
        """The priority that a running job has against others: not below that of other owners.

        One GPU for another: a gang is not stopped for many small jobs either.
        """
        owner, level = status.job.owner, self.classes[status.job.owner].level
        gpus = sum(len(slot.gpus) for slot in status.slots)
        for priority, theirs, other in self.waiting:
            if other != owner and theirs <= level:
                return max(status.job.priority, priority * gpus)
        return status.job.priority

    def told(self, live: Iterable[JobStatus], overstated: Sequence[str]) -> list[str]:
        """One line for each kind of declaration that counts less than it says."""
        jobs = [status.job for status in live]
        found: dict[tuple[str, str], Sequence[str]] = {
            (limit, what): [
                job.id
                for job in jobs
                if getattr(job, name) > getattr(self.classes[job.owner], limit)
            ]
            for name, (limit, what) in _CLIPPED.items()
        }
        found["max_step_worth", "a worth of steps"] = overstated
        return [
            f"{what} beyond the class of service counts only as far as service.{limit} allows, "
            f"for {some(sorted(over))}"
            for (limit, what), over in found.items()
            if over
        ]
