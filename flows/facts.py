"""What a page says of a job besides its place: class, unit, where it was, and why."""

from __future__ import annotations

from dataclasses import dataclass

from gogh_core.allocation import Problem, decisions
from gogh_core.domain import ClusterState, Plan, Slot

__all__ = ["JobFacts", "job_facts", "reasons"]


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job, as it was before the plan."""

    job_class: str
    promised: float
    unit: str
    at: tuple[Slot, ...]


def job_facts(state: ClusterState) -> dict[str, JobFacts]:
    """By job."""
    return {
        status.job.id: JobFacts(
            status.job.job_class, status.job.required_throughput, status.job.unit, status.slots
        )
        for status in state.jobs
    }


def reasons(problem: Problem, plan: Plan) -> dict[str, str]:
    """Why each job that starts is where it is; staying where one is needs no reason."""
    starts = {p.job: None for p in plan.placements if p.job in problem.job_of}
    return decisions(problem, plan, [job for job in starts if not problem.job_of[job].at])
