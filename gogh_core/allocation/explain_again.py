"""Planned again with one thing changed: what an alternative would have cost, what would help.

Every figure here is the cost of a plan that was made and verified, not an estimate from prices.
A `Question` is a changed problem; the answer is its plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gogh_core.allocation.effort import Effort
from gogh_core.allocation.options import Option
from gogh_core.allocation.planner import plan as make_plan
from gogh_core.allocation.problem import Problem, ProblemJob, ProblemServer
from gogh_core.domain import Plan

__all__ = ["Answer", "Asker", "Question", "forced", "helps", "left_waiting", "relaxed", "stayed"]

_CLASS = "\0this job"
"""A class of its own for the job in question; no file has such a name."""


@dataclass(frozen=True, slots=True)
class Question:
    """A problem with one thing changed, and that thing in words."""

    text: str
    problem: Problem
    sure: bool = True
    """Whether what is told of it holds in every best plan, not only in one that was found."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The plan of a changed problem."""

    question: Question
    plan: Plan

    @property
    def proven(self) -> bool:
        """Whether no plan of the changed problem costs less."""
        return self.plan.status == "optimal" and self.plan.gap <= 1e-6

    def runs(self, job: str) -> bool:
        """Whether the job runs in it."""
        return any(placement.job == job for placement in self.plan.placements)


class Asker:
    """Answers questions until the time is up; then None."""

    def __init__(self, time_limit_s: float) -> None:
        self.effort = Effort(time_limit_s=time_limit_s)
        self.each = max(self.effort.limit / 8, 0.05)
        self.known: dict[str, Answer] = {}

    def ask(self, question: Question) -> Answer | None:
        """The plan of a changed problem, or None when there is no time left for it."""
        if question.text in self.known:
            return self.known[question.text]
        if self.effort.left <= 0.025 or self.effort.is_late(0.05):
            return None
        made = make_plan(question.problem, gap=0.0, effort=self.effort.part(most=self.each))
        self.known[question.text] = Answer(question, made)
        return self.known[question.text]


def _with_job(problem: Problem, job: ProblemJob, **changes: Any) -> Problem:
    jobs = [job if other.id == job.id else other for other in problem.jobs]
    return replace(problem, jobs=jobs, **changes)


def must_run(problem: Problem, job: ProblemJob) -> Problem:
    """The job waits only if nothing lets it run: waiting costs more than any plan."""
    table = problem.table
    most = sum(s.base_w + s.off_w + s.gpus * problem.gpu_types[s.gpu_type] for s in problem.servers)
    most += sum(s.switch_cost_j for s in problem.servers) / problem.window_s
    most += float(table.power_w.max(initial=0.0)) * sum(s.gpus for s in problem.servers)
    most += sum(j.move_cost_j for j in problem.jobs) / problem.window_s
    most += sum(j.priority for j in problem.jobs) * problem.waiting_penalty_w
    fastest = max(table.throughput_a.max(initial=0.0), table.throughput_b.max(initial=0.0))
    most += sum(j.surplus_j_per_step * max(1, j.max_gpus) for j in problem.jobs) * float(fastest)
    jobs = [replace(j, priority=j.priority * problem.waiting_penalty_w) for j in problem.jobs]
    urgent = replace(job, priority=2 * most + 1)
    return _with_job(replace(problem, jobs=jobs, waiting_penalty_w=1.0), urgent)


def forced(problem: Problem, job: ProblemJob, row: int, text: str) -> Question:
    """The job runs by this option or waits at a price beyond all others."""
    option = problem.table[row]
    mine = option.classes.index(job.job_class)
    classes = list(option.classes)
    classes[mine] = _CLASS
    only = Option(
        option.gpu_type,
        option.gpus,
        tuple(classes),
        option.throughput,
        option.power_w,
        option.power_limit_w,
    )
    base = must_run(problem, job)
    own = replace(base.job_of[job.id], job_class=_CLASS)
    return Question(text, _with_job(base, own, options=[*problem.table, only]))


def left_waiting(problem: Problem, job: ProblemJob) -> Question:
    """The job waits: nothing it could run as is fast enough."""
    never = Option(problem.table[0].gpu_type, 1, (_CLASS,), (0.0,), 0.0)
    own = replace(job, job_class=_CLASS, required_throughput=1.0)
    options = [*problem.table, never]
    return Question("Left waiting", _with_job(problem, own, options=options))


def stayed(problem: Problem, job: ProblemJob) -> Question:
    """The job stays where it is."""
    return Question("Staying where it is", _with_job(problem, replace(job, pinned=True)))


def _more_servers(problem: Problem, job: ProblemJob) -> Iterator[Question]:
    """One more server of each type that the job has an option for, like the smallest that fits."""
    for gpu_type in sorted(_types(problem, job)):
        like = [s for s in problem.servers if s.gpu_type == gpu_type]
        if not like:
            continue
        model = min(like, key=lambda s: (-s.gpus, s.base_w, s.id))
        extra = ProblemServer(
            f"{model.id}\0more", gpu_type, model.gpus, model.base_w, False, off_w=0.0
        )
        noun = "GPU" if model.gpus == 1 else "GPUs"
        text = f"one more server with {model.gpus} {noun} of type {gpu_type} like {model.id}"
        yield Question(text, replace(problem, servers=[*problem.servers, extra]))


def _types(problem: Problem, job: ProblemJob) -> set[str]:
    """GPU types on which some option is enough for the job."""
    found = set()
    for option in problem.table:
        fits = option.gpus == 1 if job.mode == "spread" else option.gpus in job.gpu_counts
        for name, got in zip(option.classes, option.throughput, strict=True):
            enough = job.mode == "spread" or got >= job.required_throughput * (1 - 1e-9)
            if fits and enough and name == job.job_class:
                found.add(option.gpu_type)
    return found


def relaxed(problem: Problem, job: ProblemJob) -> Iterator[Question]:
    """Each limit that may bind the job, a little wider."""
    if problem.power_cap_w is not None:
        text = f"no power cap (it is {problem.power_cap_w:g} W)"
        yield Question(text, replace(problem, power_cap_w=None))
    if problem.max_moves is not None:
        text = f"one more move than the {problem.max_moves} allowed"
        yield Question(text, replace(problem, max_moves=problem.max_moves + 1))
    if job.owner in problem.quotas:
        have = problem.quotas[job.owner]
        more = 1 if job.mode == "spread" else min(job.gpu_counts)
        text = f"a quota of {have + more} GPUs for {job.owner!r} instead of {have}"
        quotas = {**problem.quotas, job.owner: have + more}
        yield Question(text, replace(problem, quotas=quotas))
    yield from _more_servers(problem, job)


def helps(problem: Problem, plan: Plan, job: ProblemJob, asker: Asker) -> Iterator[Question]:
    """Changes after which a waiting job runs; each was planned, and says whether that is proven."""
    slower = _slower(problem, job)
    first = asker.ask(slower) if slower is not None else None
    if slower is not None and first is not None and first.runs(job.id):
        yield replace(slower, sure=first.proven)
    else:
        urgent = _urgent(slower or Question("", problem), plan, job, asker)
        if urgent is not None:
            yield urgent
    for question in relaxed(problem, job):
        answer = asker.ask(question)
        if answer is None or not answer.runs(job.id):
            continue
        if question.problem.power_cap_w is None and problem.power_cap_w is not None:
            cap_w = math.ceil(max(problem.power_cap_w, float(answer.plan.spent["power_w"])) + 1e-6)
            text = f"a power cap of {cap_w} W instead of {problem.power_cap_w:g} W"
            capped = replace(problem, power_cap_w=float(cap_w))
            yield Question(text, capped, answer.proven)
            continue
        yield replace(question, sure=answer.proven)


def _slower(problem: Problem, job: ProblemJob) -> Question | None:
    """The requirement lowered to the most that any option gives, where none is enough."""
    here = {server.gpu_type for server in problem.servers if not server.drain}
    best = 0.0
    for option in problem.table:
        fits = option.gpus == 1 if job.mode == "spread" else option.gpus in job.gpu_counts
        if option.gpu_type not in here or not fits:
            continue
        for name, got in zip(option.classes, option.throughput, strict=True):
            if name == job.job_class:
                best = max(best, got)
    if job.mode == "spread":
        best *= job.max_gpus
    if best <= 0 or best >= job.required_throughput * (1 - 1e-9):
        return None
    text = f"a requirement of at most {best:g} instead of {job.required_throughput:g}"
    return Question(text, _with_job(problem, replace(job, required_throughput=best)))


def _urgent(start: Question, plan: Plan, job: ProblemJob, asker: Asker) -> Question | None:
    """The priority above which running the job costs less than leaving it."""
    problem = start.problem
    job, penalty_w = problem.job_of[job.id], problem.waiting_penalty_w
    answer = asker.ask(Question(f"it has to run with {start.text}", must_run(problem, job)))
    if penalty_w <= 0 or answer is None or not answer.runs(job.id):
        return None
    # Whoever leaves it waiting pays at least the bound; where that is proven, it is the cost.
    least = job.priority + (answer.plan.cost_w - plan.bound_w) / penalty_w
    text = f"a priority above {_up(least):g} instead of {job.priority:g}"
    above = replace(job, priority=_up(least) * (1 + 1e-3))
    both = f"{start.text} and {text}" if start.text else text
    urgent = Question(both, _with_job(problem, above))
    checked = asker.ask(urgent)
    return urgent if checked is not None and checked.runs(job.id) else None


def _up(value: float) -> float:
    """Rounded up to three digits."""
    rounded = float(f"{value:.3g}")
    return rounded if rounded >= value else float(f"{value * 1.005:.3g}")
