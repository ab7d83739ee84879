"""Why a job is where it is, in sentences its owner understands.

`explain` tells the decision (`decisions` only that, for as many jobs as one likes). With time to do
so it plans the problem again with one thing changed (`explain_again`) and tells what each
alternative would have cost, which limit binds and, for a job that waits, what would make it run:
each of these sentences is the cost of a plan that exists. Without time, or for more jobs than can
be planned again exactly, it tells estimates from the prices in the plan's certificate
(`explain_prices`) and says so. Watts and penalties (the rest of the cost) are told apart, and what
lies within the plan's gap is said to do so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gogh_core.allocation.explain_again import (
    Answer,
    Asker,
    Question,
    forced,
    helps,
    left_waiting,
    relaxed,
    stayed,
)
from gogh_core.allocation.explain_prices import Estimates
from gogh_core.allocation.problem import Problem, ProblemJob
from gogh_core.allocation.verify import spent_of
from gogh_core.allocation.verify_view import view_of
from gogh_core.domain import Placement, Plan
from gogh_core.errors import InvalidInput

__all__ = ["Alternative", "Difference", "Explanation", "decisions", "explain"]

_SHOWN = 4
_TRIED = 6
"""Options that are planned again; the cheapest of them are told."""
EXACT_JOBS = 150
"""Up to so many jobs an alternative is planned again; beyond, prices estimate it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What another plan costs more than this one: what it draws more, and the rest apart.

    The rest is penalties: waiting, moves, stops and switches, less the credit for work done ahead.
    """

    cost: float
    power_w: float | None
    """None: prices do not tell watts from penalties."""

    @property
    def penalty(self) -> float | None:
        """The part of the cost that is no power."""
        return None if self.power_w is None else self.cost - self.power_w

    def words(self) -> str:
        """After "the plan would"."""
        if self.power_w is None or self.penalty is None:
            about = f"about {_more(self.cost)}" if abs(self.cost) >= 0.5 else "about the same"
            return f"cost {about}, watts and penalties together"
        draw = f"draw {_more(self.power_w, ' W')}" if abs(self.power_w) >= 0.5 else ""
        rest = f"have {_more(self.penalty)} in penalties" if abs(self.penalty) >= 0.5 else ""
        return " and ".join(part for part in (draw, rest) if part) or "cost the same"


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way for the job; `more` is what the plan would cost more, None: not possible."""

    what: str
    more: Difference | None
    sure: bool
    """A proven cost; otherwise a plan that costs so much exists, or prices say so."""
    planned: bool
    slack: float = 0.0
    """By how much this plan may miss the best one; what is less cannot be told apart from it."""

    def sentence(self) -> str:
        """For the job's owner."""
        if self.more is None:
            return f"{self.what}: not possible within the limits of this plan."
        if not self.planned:
            return f"{self.what}: the plan would {self.more.words()}, by the prices in it."
        if self.slack >= 0.5 and abs(self.more.cost) <= self.slack:
            return f"{self.what}: nothing that can be told apart from the gap."
        proven = "" if self.sure else " at most"
        return f"{self.what}: the plan would{proven} {self.more.words()}."


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was decided for a job, the alternatives and what each would have cost."""

    job: str
    decision: str
    options: tuple[Alternative, ...] = ()
    binding: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    questions: tuple[Question, ...] = field(default=(), repr=False)
    """The changed problems behind `changes`."""

    @property
    def alternatives(self) -> tuple[str, ...]:
        """The alternatives as sentences."""
        return tuple(option.sentence() for option in self.options)

    def lines(self) -> list[str]:
        """Plain sentences."""
        return [self.decision, *self.alternatives, *self.binding, *self.changes]

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "job": self.job,
            "decision": self.decision,
            "alternatives": list(self.alternatives),
            "options": [
                {
                    "what": o.what,
                    "more_cost": o.more.cost if o.more else None,
                    "more_w": o.more.power_w if o.more else None,
                    "more_penalty": o.more.penalty if o.more else None,
                    "proven": o.sure,
                    "planned": o.planned,
                }
                for o in self.options
            ],
            "binding": list(self.binding),
            "changes": list(self.changes),
        }


def explain(problem: Problem, plan: Plan, job_id: str, *, time_limit_s: float = 0.0) -> Explanation:
    """Why the job is where it is in the plan; alternatives are planned again if there is time."""
    job = problem.job_of.get(job_id)
    if job is None:
        raise InvalidInput(f"job {job_id} is not in the problem", todo="give one of its jobs' ids")
    if plan.status == "infeasible":
        return Explanation(job_id, f"There is no plan: {'; '.join(plan.notes)}.")
    placements = [placement for placement in plan.placements if placement.job == job_id]
    estimates = Estimates(problem, plan, job)
    decision = _decision(problem, plan, job, placements)
    if time_limit_s <= 0 or len(problem.jobs) > EXACT_JOBS:
        taken = _taken(problem, plan, placements)
        options = [
            Alternative(what, Difference(cost, None), False, False)
            for what, cost in estimates.ways(_SHOWN, taken)
        ]
        about = ((text, True) for text in estimates.changes())
        changes = () if placements else tuple(_changes(about))
        return Explanation(job_id, decision, tuple(options), estimates.binding(), changes)
    asker = Asker(time_limit_s)
    questions = () if placements else tuple(helps(problem, plan, job, asker))
    binding = tuple(_binding(problem, plan, job, asker))
    options = _options(problem, plan, job, placements, estimates, asker)
    changes = tuple(_changes((question.text, question.sure) for question in questions))
    return Explanation(job_id, decision, tuple(options), binding, changes, questions)


def decisions(problem: Problem, plan: Plan, jobs: Iterable[str]) -> dict[str, str]:
    """Where each of these jobs runs and how fast, or why it waits, without the alternatives."""
    placements: dict[str, list[Placement]] = {}
    for placement in plan.placements:
        placements.setdefault(placement.job, []).append(placement)
    return {
        name: _decision(problem, plan, problem.job_of[name], placements.get(name, []))
        for name in jobs
    }


def _decision(problem: Problem, plan: Plan, job: ProblemJob, placements: list[Placement]) -> str:
    """Where it runs, with whom, how fast, and whether it moves; or why it waits."""
    if not placements:
        reason = next((w.reason for w in plan.waiting if w.job == job.id), "it was left out")
        stopped = " It runs now and is stopped." if job.at else ""
        return f"{job.id} waits: {reason}.{stopped}"
    where = ", ".join(
        f"GPU {' and '.join(map(str, slot.gpus))} of {slot.server}"
        for placement in placements
        for slot in placement.slots
    )
    partners = sorted({p.partner for p in placements if p.partner is not None})
    whom = f", sharing with {', '.join(partners)}" if partners else ", alone"
    limits = sorted({p.power_limit_w for p in placements if p.power_limit_w is not None})
    limit = f", at a power limit of {', '.join(f'{w:g}' for w in limits)} W" if limits else ""
    total = sum(placement.throughput for placement in placements)
    moved = next((move for move in plan.moves if move.job == job.id), None)
    start = "It stays where it is." if job.at else "It starts with this plan."
    if moved is not None:
        start = f"It moves in step {moved.step}: {moved.reason}."
    return (
        f"{job.id} runs on {where}{whom}{limit}. It reaches a throughput of {total:g}; "
        f"it requires {job.required_throughput:g}. {start}"
    )


def _taken(problem: Problem, plan: Plan, placements: list[Placement]) -> set[int]:
    """Rows of the options that the job runs by."""
    view = view_of(problem, plan)
    return {row for p in placements if (row := view.option_of.get(id(p))) is not None}


def _options(
    problem: Problem,
    plan: Plan,
    job: ProblemJob,
    placements: list[Placement],
    estimates: Estimates,
    asker: Asker,
) -> list[Alternative]:
    """The next best options by what the plan would cost, then staying, waiting, what is short."""
    taken = _taken(problem, plan, placements)
    rows = [row for row in estimates.order() if row not in taken or len(taken) > 1]
    told: list[Alternative] = []
    for row in rows[:_TRIED]:
        answer = asker.ask(forced(problem, job, row, estimates.name(row)))
        if answer is not None:
            told.append(_told(problem, plan, job, answer, must_run=True))
    told.sort(key=lambda option: float("inf") if option.more is None else option.more.cost)
    told = [option for option in told[:_SHOWN] if option.more is not None or len(told) == 1]
    if any(move.job == job.id for move in plan.moves) or (job.at and not placements):
        answer = asker.ask(stayed(problem, job))
        if answer is not None:
            told.append(_told(problem, plan, job, answer, must_run=True))
    if placements and not job.pinned:
        answer = asker.ask(left_waiting(problem, job))
        if answer is not None:
            told.append(_told(problem, plan, job, answer, must_run=False))
    return told


def _told(
    problem: Problem, plan: Plan, job: ProblemJob, answer: Answer, *, must_run: bool
) -> Alternative:
    what = answer.question.text
    if answer.plan.status == "infeasible" or (must_run and not answer.runs(job.id)):
        return Alternative(what, None, answer.proven, True)
    more = _difference(problem, plan, answer.plan)
    return Alternative(what, more, answer.proven, True, plan.cost_w - plan.bound_w)


def _difference(problem: Problem, plan: Plan, other: Plan) -> Difference:
    draws_w = spent_of(problem, plan).power_w
    return Difference(other.cost_w - plan.cost_w, float(other.spent["power_w"]) - draws_w)


def _binding(problem: Problem, plan: Plan, job: ProblemJob, asker: Asker) -> Iterable[str]:
    """Limits without which a plan exists that costs less, by more than this one may miss."""
    slack, blurred = plan.cost_w - plan.bound_w, []
    for question in relaxed(problem, job):
        answer = asker.ask(question)
        if answer is None or answer.plan.status == "infeasible":
            continue
        more = _difference(problem, plan, answer.plan)
        if -more.cost > max(slack, 0.5):
            yield f"With {question.text} the plan as a whole would {more.words()}."
        elif -more.cost > 0.5:
            blurred.append(question.text)
    if blurred:
        yield (
            f"With {', or '.join(blurred)}: nothing that can be told apart from the gap "
            f"({plan.gap:.2%})."
        )


def _changes(told: Iterable[tuple[str, bool]]) -> Iterable[str]:
    for text, sure in told:
        if sure:
            yield f"It would run with {text}."
        else:
            yield f"It may run with {text}: it does in a plan that was found, not proven the best."


def _more(amount: float, unit: str = "") -> str:
    return f"{abs(amount):.0f}{unit} {'more' if amount > 0 else 'less'}"
