"""What has to hold between the plans of two problems, on costs proven optimal (`gap` 0).

Every test counts what it compared: a comparison that was skipped shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings

from gogh_core.allocation import Limits, Problem, plan, verify
from gogh_core.domain import Plan, Slot
from gogh_core.errors import InvalidProblem
from tests.allocation.strategies import problems
from tests.allocation.test_random_problems import QUIET

Check = Callable[[Problem], int]


def compared(check: Check, examples: int) -> int:
    """How many comparisons a check made on so many random problems."""
    count = 0

    @settings(max_examples=examples, **QUIET)
    @given(problems(max_jobs=4, max_gpus=5))
    def run(problem: Problem) -> None:
        nonlocal count
        if problem.jobs:
            # Guidance is no part of the cost, so a cost proven optimal has none.
            count += check(replace(problem, limits=Limits()))

    run()
    return count


def proven(problem: Problem) -> Plan | None:
    made = plan(problem, gap=0.0, time_limit_s=30)
    return made if made.status == "optimal" and made.gap <= 1e-6 else None


def near(cost_w: float) -> float:
    return 1e-6 * (1 + abs(cost_w))


def adding_a_server(problem: Problem) -> int:
    """One like each that is there: a larger one would change what fits one server."""
    before = proven(problem)
    if before is None:
        return 0
    like = problem.servers[len(problem.jobs) % len(problem.servers)]
    extra = replace(like, id="extra", on=False, drain=False, keep_on=False, off_w=0.0)
    after = proven(replace(problem, servers=[*problem.servers, extra]))
    if after is None:
        return 0
    assert after.cost_w <= before.cost_w + near(before.cost_w)
    return 1


def removing_an_option(problem: Problem) -> int:
    before = proven(problem)
    if before is None:
        return 0
    used = {(p.partner is not None, round(p.throughput)) for p in before.placements}
    options = sorted(
        problem.table,
        key=lambda o: (len(o.classes) == 2, round(o.throughput[0])) not in used,
    )
    count = 0
    for gone in options[:2]:
        try:
            fewer = replace(problem, options=[o for o in problem.table if o != gone])
        except InvalidProblem:
            continue  # The last option of a job's class.
        after = plan(fewer, gap=0.0, time_limit_s=30)
        if after.status == "infeasible":
            count += 1  # A pinned job has nothing left to run as: no plan is dearer than any.
        elif after.status == "optimal":
            assert after.cost_w >= before.cost_w - near(before.cost_w)
            count += 1
    return count


def scaling(problem: Problem) -> int:
    """Three times the watts, joules and penalties: three times the cost."""
    before = proven(problem)
    if before is None:
        return 0
    cap_w = problem.power_cap_w
    larger = replace(
        problem,
        waiting_penalty_w=3 * problem.waiting_penalty_w,
        gpu_types={name: 3 * idle for name, idle in problem.gpu_types.items()},
        servers=[
            replace(s, base_w=3 * s.base_w, off_w=3 * s.off_w, switch_cost_j=3 * s.switch_cost_j)
            for s in problem.servers
        ],
        jobs=[
            replace(j, move_cost_j=3 * j.move_cost_j, surplus_j_per_step=3 * j.surplus_j_per_step)
            for j in problem.jobs
        ],
        options=[replace(o, power_w=3 * o.power_w) for o in problem.table],
        power_cap_w=None if cap_w is None else 3 * cap_w,
    )
    after = proven(larger)
    if after is None:
        return 0
    assert after.cost_w == pytest.approx(3 * before.cost_w, rel=1e-6, abs=1e-6)
    return 1


def carried_out(problem: Problem, made: Plan) -> Problem:
    """The problem after its plan: jobs where they were placed, servers switched.

    A job that may not move and was stopped is left out: it could start anywhere afterwards, which
    the problem that was planned did not allow.
    """
    at: dict[str, list[Slot]] = {}
    for placement in made.placements:
        at.setdefault(placement.job, []).extend(placement.slots)
    action = {switch.id: switch.action == "on" for switch in made.servers}
    return replace(
        problem,
        jobs=[
            replace(job, at=tuple(at.get(job.id, ())))
            for job in problem.jobs
            if job.id in at or not job.at or job.movable
        ],
        servers=[replace(s, on=action.get(s.id, s.on)) for s in problem.servers],
        max_moves=None,
    )


def planning_again(gap: float) -> Check:
    def check(problem: Problem) -> int:
        free = replace(problem, max_moves=None)
        made = plan(free, gap=gap, time_limit_s=30)
        if made.status != "optimal":
            return 0
        after = carried_out(free, made)
        again = plan(after, gap=gap, time_limit_s=30)
        assert verify(after, again) == []
        assert again.moves == again.stops == ()
        return 1

    return check


CHECKS: dict[str, Check] = {
    "adding a server never raises the cost": adding_a_server,
    "removing an option never lowers it": removing_an_option,
    "scaling watts, joules and penalties scales the cost": scaling,
    "planned again from its own plan at gap 0 nobody moves": planning_again(0.0),
    "planned again from its own plan at gap 5 % nobody moves": planning_again(0.05),
}


@pytest.mark.parametrize("name", CHECKS)
def test_metamorphic(name):
    assert compared(CHECKS[name], 12) >= 8


@pytest.mark.e2e
@pytest.mark.parametrize("name", CHECKS)
def test_metamorphic_on_many(name):
    assert compared(CHECKS[name], 30) >= 22


@pytest.mark.soak
@pytest.mark.parametrize("name", CHECKS)
def test_metamorphic_on_thousands(name):
    assert compared(CHECKS[name], 1000) >= 850
