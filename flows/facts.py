"""What a page says of a job besides its place: class, promise, where it was, watts and why."""

from __future__ import annotations

from dataclasses import dataclass

from gogh_core.allocation import Problem, decisions
from gogh_core.domain import ClusterState, Plan, Slot

__all__ = ["JobFacts", "job_facts", "job_watts", "reasons"]


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job, as it was before the plan."""

    job_class: str
    required: float
    unit: str
    at: tuple[Slot, ...]


def job_facts(state: ClusterState, problem: Problem | None) -> dict[str, JobFacts]:
    """By job; the problem's figures win, they are what was planned with (deadlines, places)."""
    units = {status.job.id: status.job.unit for status in state.jobs}
    found = {
        status.job.id: JobFacts(
            status.job.job_class, status.job.required_throughput, status.job.unit, status.slots
        )
        for status in state.jobs
    }
    for job in problem.jobs if problem is not None else ():
        found[job.id] = JobFacts(
            job.job_class, job.required_throughput, units.get(job.id, "steps/s"), job.at
        )
    return found


def job_watts(problem: Problem, plan: Plan) -> dict[str, float]:
    """Draw of each job's option; of two that share, half each."""
    table = problem.table
    power: dict[tuple[str, int, tuple[str, ...], float | None], float] = {}
    wanted = {problem.job_of[p.job].job_class for p in plan.placements if p.job in problem.job_of}
    kept = {i for i, name in enumerate(table.classes) if name in wanted}
    for index, (a, b) in enumerate(
        zip(table.class_a.tolist(), table.class_b.tolist(), strict=True)
    ):
        if a in kept and (b < 0 or b in kept):
            option = table[index]
            key = (option.gpu_type, option.gpus, option.classes, option.power_limit_w)
            power[key] = option.power_w
    watts: dict[str, float] = {}
    for placement in plan.placements:
        jobs = [placement.job, *([placement.partner] if placement.partner else [])]
        if any(job not in problem.job_of for job in jobs):
            continue
        classes = tuple(sorted(problem.job_of[job].job_class for job in jobs))
        kind = problem.server_of[placement.slots[0].server].gpu_type
        gpus = sum(len(slot.gpus) for slot in placement.slots)
        found = power.get((kind, gpus, classes, placement.power_limit_w))
        if found is not None:
            watts[placement.job] = watts.get(placement.job, 0.0) + found / len(jobs)
    return watts


def reasons(problem: Problem, plan: Plan) -> dict[str, str]:
    """Why each job that starts is where it is; staying where one is needs no reason."""
    starts = {p.job: None for p in plan.placements if p.job in problem.job_of}
    return decisions(problem, plan, [job for job in starts if not problem.job_of[job].at])
