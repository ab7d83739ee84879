"""The independent check of a plan: every rule and every watt, from problem and plan alone.

Nothing of the solver's path is used here: where jobs sit, what they run as, what it costs and
what the duals prove is worked out again. `verify` lists every violation; none means good.
One function is one rule, its first line is the rule and its name is the violation's:

`verify_rules`       where jobs may sit: capacity, sharing, gangs, options, pins, drains, quotas
`verify_moves`       moves, stops and switches, and whether their order can be carried out
`verify_cost`        the cost term by term, the power cap, the bound and the gap
`verify_infeasible`  whether the problem really has no plan
`verify_bound*`      the bound that a certificate proves
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gogh_core.allocation.problem import Problem
from gogh_core.allocation.verify_cost import MONEY, Spent, gap_of, spent_in
from gogh_core.allocation.verify_infeasible import infeasible_is_proven
from gogh_core.allocation.verify_moves import CHANGES
from gogh_core.allocation.verify_rules import PLACES, SHAPE
from gogh_core.allocation.verify_view import View, view_of
from gogh_core.domain import Plan

__all__ = ["RULES", "Spent", "Violation", "gap_of", "spent_of", "verify", "violations_of"]

Rule = Callable[[View], Iterable[str]]
RULES: tuple[Rule, ...] = (*SHAPE, *PLACES, *CHANGES, *MONEY, infeasible_is_proven)
"""Every rule; the docs list a mutant for each."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a plan breaks, by the rule's name, and how."""

    rule: str
    text: str


def verify(problem: Problem, plan: Plan) -> list[str]:
    """Every violation of the plan; an empty list means that it is good."""
    return [violation.text for violation in violations_of(problem, plan)]


def violations_of(problem: Problem, plan: Plan) -> list[Violation]:
    """Every violation with the name of its rule; sums are only made where the shape is good."""
    view = view_of(problem, plan)
    if plan.status == "infeasible":
        return _broken((infeasible_is_proven,), view)
    return _broken(SHAPE, view) or _broken((*PLACES, *CHANGES, *MONEY), view)


def _broken(rules: Iterable[Rule], view: View) -> list[Violation]:
    return [Violation(rule.__name__, text) for rule in rules for text in rule(view)]


def spent_of(problem: Problem, plan: Plan) -> Spent:
    """What the plan costs by kind; the plan's shape must be good."""
    return spent_in(view_of(problem, plan))
