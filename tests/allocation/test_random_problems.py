"""Random small problems, every optional field: verified, bounded, and as good as brute force."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from gogh_core.allocation import greedy, plan, verify
from tests.allocation.brute import best_cost
from tests.allocation.strategies import problems

QUIET = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
    "database": None,
}


def check(problem) -> None:
    made = plan(problem, gap=0.0, time_limit_s=30)
    assert verify(problem, made) == []
    if made.status == "infeasible":
        return
    best = best_cost(problem)
    assert made.bound_w <= best + 1e-6 * (1 + abs(best))
    assert made.cost_w >= best - 1e-6 * (1 + abs(best))
    if made.status == "optimal":
        assert made.cost_w == pytest.approx(best, rel=1e-6, abs=1e-6)


@settings(max_examples=30, **QUIET)
@given(problems())
def test_plans_of_random_problems_are_verified_and_bounded(problem):
    check(problem)


@pytest.mark.e2e
@settings(max_examples=200, **QUIET)
@given(problems())
def test_two_hundred_random_problems(problem):
    check(problem)


@pytest.mark.soak
@settings(max_examples=3000, **QUIET)
@given(problems(max_jobs=5, max_gpus=5))
def test_thousands_of_random_problems(problem):
    check(problem)


@settings(max_examples=40, **QUIET)
@given(problems())
def test_the_greedy_plan_is_good_too(problem):
    assert verify(problem, greedy(problem)) == []


@settings(max_examples=8, **QUIET)
@given(problems())
def test_the_order_of_the_input_does_not_matter(problem):
    shuffled = random.Random(1)
    servers, jobs, options = list(problem.servers), list(problem.jobs), list(problem.table)
    for entries in (servers, jobs, options):
        shuffled.shuffle(entries)
    other = replace(problem, servers=servers, jobs=jobs, options=options)
    assert other.sha256 == problem.sha256
    one, two = plan(problem, time_limit_s=30).to_dict(), plan(other, time_limit_s=30).to_dict()
    for entry in (one, two):
        del entry["solve_s"]
    assert one == two
