"""Random small problems, every optional field: verified, bounded, and as good as brute force."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from gogh_core.allocation import Limits, Problem, greedy, plan, verify
from tests.allocation.brute import best_cost
from tests.allocation.strategies import problems

QUIET = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
    "database": None,
}


def check(problem: Problem) -> None:
    """The plan is verified, costs no less than the bound, and equals brute force.

    Guidance (jobs to be left alone) may keep a plan from the best; then it does not say optimal.
    """
    made = plan(problem, gap=0.0, time_limit_s=30)
    assert verify(problem, made) == []
    best = best_cost(problem)
    if made.status == "infeasible":
        assert best == float("inf"), "a plan exists"
        return
    near = 1e-6 * (1 + abs(best))
    assert made.bound_w <= best + near
    assert made.bound_w <= made.cost_w + near
    assert made.cost_w >= best - near
    if made.status == "optimal" or problem.limits == Limits():
        assert made.cost_w <= best + near


@settings(max_examples=30, **QUIET)
@given(problems())
def test_plans_of_random_problems_are_verified_and_bounded(problem):
    check(problem)


@pytest.mark.e2e
@settings(max_examples=200, **QUIET)
@given(problems(max_jobs=5, max_gpus=5))
def test_two_hundred_random_problems(problem):
    check(problem)


@pytest.mark.soak
@settings(max_examples=3000, **QUIET)
@given(problems(max_jobs=6, max_gpus=6))
def test_thousands_of_random_problems(problem):
    check(problem)


@settings(max_examples=40, **QUIET)
@given(problems())
def test_the_greedy_plan_is_good_too(problem):
    assert verify(problem, greedy(problem)) == []


def same_in_any_order(problem: Problem) -> None:
    shuffled = random.Random(1)
    servers, jobs, options = list(problem.servers), list(problem.jobs), list(problem.table)
    for entries in (servers, jobs, options):
        shuffled.shuffle(entries)
    options = [replace(o, classes=o.classes[::-1], throughput=o.throughput[::-1]) for o in options]
    other = replace(problem, servers=servers, jobs=jobs, options=options)
    assert other.sha256 == problem.sha256
    one, two = plan(problem, time_limit_s=30).to_dict(), plan(other, time_limit_s=30).to_dict()
    for entry in (one, two):
        del entry["solve_s"]
    assert one == two


@settings(max_examples=8, **QUIET)
@given(problems())
def test_the_order_of_the_input_does_not_matter(problem):
    same_in_any_order(problem)


@pytest.mark.soak
@settings(max_examples=500, **QUIET)
@given(problems(max_jobs=6, max_gpus=6))
def test_the_order_of_the_input_never_matters(problem):
    same_in_any_order(problem)


def test_every_optional_field_is_drawn():
    """A field that is never drawn is never tested."""
    seen: set[str] = set()

    @settings(max_examples=150, **QUIET)
    @given(problems(max_jobs=5, max_gpus=6))
    def look(problem: Problem) -> None:
        seen.update(name for name, said in said_by(problem).items() if said)

    look()
    assert set(said_by(Problem(1.0, 0.0, {}, [], [], []))) - seen == set()


def said_by(problem: Problem) -> dict[str, bool]:
    jobs, servers, options = problem.jobs, problem.servers, list(problem.table)
    largest = max((server.gpus for server in servers), default=0)
    return {
        "power_cap_w": problem.power_cap_w is not None,
        "max_moves": problem.max_moves is not None,
        "quotas": bool(problem.quotas),
        "limits": problem.limits != Limits(),
        "pinned": any(job.pinned for job in jobs),
        "not movable": any(job.at and not job.movable for job in jobs),
        "not shareable": any(job.shareable is False for job in jobs),
        "consent of owners": any(job.shareable == "owner" for job in jobs),
        "surplus": any(job.surplus_j_per_step for job in jobs),
        "since_s": any(job.since_s is not None for job in jobs),
        "moved_ago_s": any(job.moved_ago_s is not None for job in jobs),
        "moves": any(job.moves for job in jobs),
        "spread": any(job.mode == "spread" for job in jobs),
        "spread on several GPUs": any(job.mode == "spread" and len(job.at) > 1 for job in jobs),
        "gang of several": any(job.mode == "gang" and max(job.gpu_counts) > 1 for job in jobs),
        "gang larger than a server": any(
            job.mode == "gang" and max(job.gpu_counts) > largest for job in jobs
        ),
        "two share now": len({g for j in jobs for g in j.place})
        < sum(len(job.place) for job in jobs),
        "drain": any(server.drain for server in servers),
        "keep_on": any(server.keep_on for server in servers),
        "off_w": any(server.off_w for server in servers),
        "switch_cost_j": any(server.switch_cost_j for server in servers),
        "power limit alone": any(o.power_limit_w and len(o.classes) == 1 for o in options),
        "power limit of a pair": any(o.power_limit_w and len(o.classes) == 2 for o in options),
        "two GPU types": len(problem.gpu_types) > 1,
    }
