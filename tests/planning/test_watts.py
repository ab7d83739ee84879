"""Watts of plans: one figure for one plan, wherever it is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from gogh_core.allocation import Option, Problem, ProblemJob, ProblemServer, plan
from gogh_core.domain import Placement, Plan, Slot
from gogh_core.planning.diff import plan_diff
from gogh_core.planning.watts import draw_now, planned_w, reference, watts_by_job
from tests.allocation.strategies import problems

IDLE_W, BASE_W = 30.0, 100.0


def problem(jobs: list[ProblemJob], options: list[Option], servers: int = 2) -> Problem:
    machines = [ProblemServer(f"s{n}", "v100", 2, BASE_W) for n in range(1, servers + 1)]
    return Problem(300.0, 10_000.0, {"v100": IDLE_W}, machines, jobs, options)


def as_it_runs(asked: Problem, made: Plan) -> tuple[Problem, dict[tuple[str, int], float | None]]:
    """The problem with all jobs where the plan puts them, and the power limits of the GPUs."""
    at: dict[str, list[Slot]] = {}
    limits = {}
    for placement in made.placements:
        at.setdefault(placement.job, []).extend(placement.slots)
        for slot in placement.slots:
            limits |= {(slot.server, gpu): placement.power_limit_w for gpu in slot.gpus}
    switched = {switch.id: switch.action == "on" for switch in made.servers}
    jobs = [
        replace(job, at=tuple(at.get(job.id, ())), pinned=False, movable=True) for job in asked.jobs
    ]
    servers = [replace(s, on=switched.get(s.id, s.on), drain=False) for s in asked.servers]
    return replace(asked, jobs=jobs, servers=servers), limits


GANG = Option("v100", 4, ("A",), (9.0,), 800.0)


def test_a_gang_over_two_servers_that_stays_saves_nothing() -> None:
    at = (Slot("s1", (0, 1)), Slot("s2", (0, 1)))
    asked = problem([ProblemJob("a", "A", gpu_counts=(4,), at=at)], [GANG])
    diff = plan_diff(asked, plan(asked))
    assert diff.now_w == pytest.approx(2 * BASE_W + 800.0)
    assert diff.change_w == pytest.approx(0.0)


def test_a_power_limit_counts_in_what_runs_now_and_in_what_is_planned() -> None:
    options = [
        Option("v100", 1, ("A",), (9.0,), 250.0),
        Option("v100", 1, ("A",), (8.0,), 180.0, power_limit_w=180.0),
    ]
    asked = problem([ProblemJob("a", "A", at=(Slot("s1", (0,)),))], options, servers=1)
    made = plan(asked)
    assert made.placements[0].power_limit_w == 180.0
    assert watts_by_job(asked, made) == {"a": pytest.approx(180.0)}
    assert draw_now(asked, {("s1", 0): 180.0}) == pytest.approx(BASE_W + 180.0 + IDLE_W)
    assert draw_now(asked) == pytest.approx(BASE_W + 250.0 + IDLE_W)


def test_a_limit_of_which_no_option_is_known_draws_no_more_than_it_allows() -> None:
    options = [Option("v100", 1, ("A",), (9.0,), 250.0)]
    asked = problem([ProblemJob("a", "A", at=(Slot("s1", (0,)),))], options, servers=1)
    assert draw_now(asked, {("s1", 0): 120.0}) == pytest.approx(BASE_W + 120.0 + IDLE_W)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_what_a_plan_says_it_draws_is_what_it_draws_once_it_runs(asked: Problem) -> None:
    made = plan(asked, time_limit_s=5)
    if made.status == "infeasible":
        return
    running, limits = as_it_runs(asked, made)
    kept_on = sum(
        s.base_w - s.off_w + s.gpus * asked.gpu_types[s.gpu_type]
        for s in asked.servers
        if s.on
        and all(slot.server != s.id for p in made.placements for slot in p.slots)
        and all(switch.id != s.id for switch in made.servers)
        and not s.keep_on
    )
    assert kept_on == 0
    assert draw_now(running, limits) == pytest.approx(planned_w(made))
    by_job = sum(watts_by_job(asked, made).values())
    assert by_job == pytest.approx(float(made.spent["options_w"]))


def test_the_reference_runs_the_same_jobs_at_their_promises() -> None:
    options = [
        Option("v100", 1, ("A",), (9.0,), 200.0),
        Option("v100", 1, ("A", "A"), (5.0, 5.0), 240.0),
    ]
    jobs = [ProblemJob(name, "A", required_throughput=4.0) for name in ("a", "b")]
    asked = problem(jobs, options, servers=1)
    alone = Plan.from_dict(
        {
            **plan(asked).to_dict(),
            "placements": [
                Placement(n, (Slot("s1", (i,)),), None, 9.0).to_dict() for i, n in enumerate("ab")
            ],
        }
    )
    alone = replace(alone, spent={**alone.spent, "power_w": BASE_W + 400.0, "surplus_w": 0.0})
    found = reference(asked, alone)
    assert found is not None
    assert found.draw_w == pytest.approx(BASE_W + 240.0 + IDLE_W)
    assert found.saved_w == pytest.approx(-130.0)
    assert str(found) == "draws 130 W (35 %) more than best fit"


def test_steps_beyond_the_promise_are_no_waste() -> None:
    """A plan that draws more to do more work is compared at equal work."""
    options = [
        Option("v100", 1, ("A",), (10.0,), 200.0),
        Option("v100", 1, ("A",), (5.0,), 120.0, power_limit_w=120.0),
    ]
    job = ProblemJob("a", "A", required_throughput=4.0, surplus_j_per_step=20.0)
    asked = problem([job], options, servers=1)
    made = plan(asked)
    found = reference(asked, made)
    assert made.placements[0].power_limit_w is None
    assert found is not None
    assert found.saved_w == pytest.approx(0.0)


def test_where_best_fit_leaves_jobs_waiting_no_saving_is_told() -> None:
    """The gang cannot be promised its two GPUs of one server once singles sit on both."""
    options = [
        Option("v100", 2, ("G",), (9.0,), 400.0),
        Option("v100", 1, ("A",), (9.0,), 200.0),
    ]
    pinned = ProblemJob("p", "A", at=(Slot("s1", (0,)),), pinned=True)
    asked = problem([pinned, ProblemJob("g", "G", gpu_counts=(2,))], options, servers=1)
    with_two = replace(asked, servers=[*asked.servers, replace(asked.servers[0], id="s2")])
    made = plan(with_two)
    assert not made.waiting
    found = reference(asked, made)
    assert found is not None
    assert found.left_out == 1
    assert found.share is None
    assert str(found) == "best fit leaves 1 of them waiting"
    assert found.to_dict()["saved_w"] is None
