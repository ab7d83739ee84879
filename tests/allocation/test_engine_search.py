"""How the search finds and proves: limits of time, who waits, room for gangs, both solvers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gogh_core.allocation import (
    Option,
    Problem,
    ProblemJob,
    ProblemServer,
    plan,
    rival_plan,
    verify,
)
from gogh_core.allocation.colgen import Search
from gogh_core.allocation.compiled import Compiled
from gogh_core.allocation.effort import Effort
from gogh_core.allocation.mapping import map_counts
from gogh_core.allocation.master import Master
from gogh_core.allocation.mip import Part, solve_mip
from gogh_core.allocation.prices import Prices
from gogh_core.allocation.pricing import Pricer
from gogh_core.bench.problems import churned, generate
from gogh_core.domain import Slot


@pytest.mark.parametrize("limit_s", [0.0001, 0.05, 0.5])
def test_an_absurd_time_limit_still_gives_everybody_a_place(limit_s):
    problem = generate(200, 640, 3)
    made = plan(problem, gap=0.0, time_limit_s=limit_s)
    assert verify(problem, made) == []
    assert made.waiting == ()
    assert made.status != "infeasible"


def test_after_the_clock_who_runs_still_stays():
    first = generate(100, 320, 1)
    problem = churned(first, plan(first, gap=0.02), 0.1, 1)
    made = plan(problem, gap=0.0, time_limit_s=0.0001)
    assert verify(problem, made) == []
    assert made.moves == made.stops == ()


def test_the_number_of_jobs_that_wait_is_branched_on_as_a_whole():
    problem = generate(60, 16, 5)
    made = plan(problem, gap=0.005, time_limit_s=60)
    assert made.waiting
    assert made.status == "optimal"
    assert verify(problem, made) == []


def gang_between_stayers(move_cost_j: float) -> Problem:
    """Two servers half full of small jobs, and a gang that needs a whole one."""
    servers = [ProblemServer(name, "v100", 4, 100.0) for name in ("s1", "s2")]
    small = [
        ProblemJob(
            f"j{at}",
            "small",
            required_throughput=1.0,
            at=(Slot(f"s{at % 2 + 1}", (at // 2,)),),
            move_cost_j=move_cost_j,
        )
        for at in range(4)
    ]
    gang = ProblemJob("gang", "large", gpu_counts=(4,), required_throughput=1.0)
    options = [
        Option("v100", 1, ("small",), (2.0,), 100.0),
        Option("v100", 4, ("large",), (2.0,), 400.0),
    ]
    return Problem(300.0, 10000.0, {"v100": 40.0}, servers, [*small, gang], options)


def test_room_is_made_for_a_gang_among_those_who_stay():
    problem = gang_between_stayers(30000.0)
    made = plan(problem, gap=0.0, time_limit_s=30)
    assert made.waiting == ()
    assert len(made.moves) == 2


def test_room_is_not_made_where_moving_costs_more_than_waiting():
    made = plan(gang_between_stayers(6e6), gap=0.0, time_limit_s=30)
    assert [waiting.job for waiting in made.waiting] == ["gang"]
    assert made.moves == ()


def test_room_is_not_made_by_jobs_that_may_not_move():
    problem = gang_between_stayers(0.0)
    jobs = [replace(job, movable=not job.at) for job in problem.jobs]
    made = plan(replace(problem, jobs=jobs), gap=0.0, time_limit_s=30)
    assert [waiting.job for waiting in made.waiting] == ["gang"]


@pytest.mark.parametrize("solver", ["glpk", "highs"])
def test_both_solvers_tell_that_they_finished(solver):
    master = Master(Compiled(generate(6, 16, 0)))
    Pricer(master).first_columns()
    part = Part(master.program, range(len(master.program.columns)), {}, {})
    outcome = solve_mip(part, solver=solver, gap=0.0, time_s=30)
    assert outcome.found is not None
    assert outcome.complete


def test_rivals_that_finish_cost_the_same_and_the_simple_rules_more():
    problem = generate(8, 16, 2)
    best = plan(problem, gap=0.0, time_limit_s=60)
    cost = {
        name: made.cost_w
        for name in ("first fit", "best fit", "whole, HiGHS", "naive, GLPK")
        if (made := rival_plan(name, problem, gap=0.0, time_limit_s=60)) is not None
    }
    assert best.status == "optimal"
    assert cost["whole, HiGHS"] == pytest.approx(best.cost_w, rel=1e-6)
    assert cost["naive, GLPK"] == pytest.approx(best.cost_w, rel=1e-6)
    assert cost["first fit"] >= best.cost_w - 1e-6
    assert cost["best fit"] >= best.cost_w - 1e-6


def slow_beside_others() -> Problem:
    """A gang that is fast enough alone only, and spread jobs who would like to share with it."""
    servers = [ProblemServer(f"s{at}", "t4", 4, 100.0) for at in range(2)]
    options = [
        Option("t4", 1, ("gang",), (2.0,), 50.0),
        Option("t4", 1, ("spread",), (5.0,), 50.0),
        Option("t4", 1, ("gang", "spread"), (1.0, 4.5), 60.0),
        Option("t4", 1, ("spread", "spread"), (3.0, 3.0), 60.0),
    ]
    jobs = [
        ProblemJob("g1", "gang", required_throughput=2.0),
        ProblemJob("s1", "spread", mode="spread", max_gpus=3, required_throughput=8.0),
        ProblemJob("s2", "spread", mode="spread", max_gpus=3, required_throughput=6.0),
    ]
    return Problem(300.0, 1000.0, {"t4": 10.0}, servers, jobs, options)


def test_nobody_bids_for_a_side_that_no_job_of_the_class_may_use():
    master = Master(Compiled(slow_beside_others()))
    pricer = Pricer(master)
    pricer.first_columns()
    prices = Prices.of(master, np.zeros(len(master.program.row_of)))
    bids = [pricer.offers(block, prices) for block in pricer.blocks]
    top, who, _ = pricer._tops(bids, 0)
    assert (who[~np.isfinite(top)] == -1).all()
    assert not np.isfinite(top).all()


def test_counts_that_ask_for_a_job_twice_are_mapped_with_it_once() -> None:
    """Rounding merges columns of spread jobs, and may count one more than there are."""
    options = [Option("v100", 1, ("A",), (9.0,), 200.0)]
    servers = [ProblemServer("s1", "v100", 2, 100.0)]
    jobs = [ProblemJob("a", "A", mode="spread", max_gpus=2, required_throughput=10.0)]
    problem = Problem(300.0, 1e4, {"v100": 30.0}, servers, jobs, options)
    compiled = Compiled(problem)
    search = Search(compiled, solver="glpk", effort=Effort(60), notes=[])
    try:
        search.generate(1e-6)
        columns = search.master.program.columns
        counts = {i: 2 for i, column in enumerate(columns) if column.what[0] == "bundle"}
        assert counts
        seats = map_counts(compiled, search.master.program, counts)
    finally:
        search.lp.close()
    assert set(seats) == {0}
