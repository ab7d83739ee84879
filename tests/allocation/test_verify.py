"""Mutants: a good plan is broken in one way each, and the verifier names the rule."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gogh_core.allocation import plan, verify
from gogh_core.allocation.verify import RULES, Spent, spent_of, violations_of
from tests.allocation import plans
from tests.allocation.mutants import MUTANTS, restated

PROBLEM = plans.problem()
GOOD = plans.stated(PROBLEM)
ALL = [(rule, name) for rule, mutants in MUTANTS.items() for name in mutants]
TERMS = tuple(Spent.__dataclass_fields__)


def test_the_plan_by_hand_is_good():
    assert violations_of(PROBLEM, GOOD) == []


def test_its_cost_is_what_the_formula_gives_by_hand():
    spent = spent_of(PROBLEM, GOOD)
    assert asdict(spent) == {
        "base_w": 50.0 + 60 + 80 + 90 + 10 + 10,
        "idle_w": 10.0 + 20,  # one GPU of s4, one of s5
        "off_w": 5.0 + 7,
        "options_w": 120.0 + 90 + 110 + 200 + 300 + 110 + 100 + 100 + 90,
        "moves_w": 2.0,
        "stops_w": 1.0,
        "switches_w": 2.0 + 3,
        "waiting_w": 1000.0 + 500,
        "surplus_w": 4.0,
    }
    assert all(value > 0 for value in asdict(spent).values()), "a term that is 0 shows nothing"


@pytest.mark.parametrize(("rule", "name"), ALL)
def test_the_verifier_catches(rule, name):
    mutate, others = MUTANTS[rule][name]
    made = mutate(PROBLEM, GOOD)
    problem, mutant = made if isinstance(made, tuple) else (PROBLEM, made)
    assert mutant != GOOD or problem is not PROBLEM
    caught = {violation.rule for violation in violations_of(problem, mutant)}
    assert rule in caught
    assert caught <= {rule, *others}, "it is caught for another reason too"


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("by_w", [2.0, -2.0])
def test_the_verifier_catches_each_term_of_the_cost(term, by_w):
    """A planner that counts a term wrong states a cost that is wrong by as much."""
    sign = -1 if term == "surplus_w" else 1
    spent = {**GOOD.spent, term: GOOD.spent[term] + by_w}
    wrong = restated(replace(GOOD, spent=spent), cost_w=GOOD.cost_w + sign * by_w)
    found = violations_of(PROBLEM, wrong)
    assert {violation.rule for violation in found} == {"cost_is_right"}
    assert any(term in violation.text for violation in found)
    assert any("cost_w" in violation.text for violation in found)


@pytest.mark.parametrize("term", TERMS)
def test_the_verifier_catches_a_term_left_out(term):
    sign = -1 if term == "surplus_w" else 1
    spent = {name: value for name, value in GOOD.spent.items() if name != term}
    cost_w = GOOD.cost_w - sign * GOOD.spent[term]
    wrong = restated(replace(GOOD, spent=spent), cost_w=cost_w)
    caught = {violation.rule for violation in violations_of(PROBLEM, wrong)}
    assert "cost_is_right" in caught


def test_every_rule_has_a_mutant_and_the_docs_list_them():
    rules = {rule.__name__ for rule in RULES}
    assert set(MUTANTS) == rules
    docs = (Path(__file__).parents[2] / "docs" / "allocation.md").read_text()
    missing = [name for _, name in ALL if name not in docs] + [r for r in rules if r not in docs]
    assert missing == []
    assert [term for term in TERMS if term not in docs] == []


def test_a_planned_plan_is_good_and_no_dearer_than_the_one_by_hand():
    made = plan(PROBLEM, gap=0.0)
    assert verify(PROBLEM, made) == []
    assert made.bound_w <= made.cost_w <= GOOD.cost_w
