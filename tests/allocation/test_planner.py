"""The planner: exact on small problems, metamorphic, replanning, limits, broken solvers."""

from __future__ import annotations

import os
import stat
from dataclasses import replace

import pytest

from gogh_core.allocation import Limits, Option, Problem, ProblemJob, ProblemServer, plan, verify
from gogh_core.allocation.compiled import Compiled
from gogh_core.allocation.lp import Glpk
from gogh_core.allocation.master import Master
from gogh_core.allocation.mip import Part, build_model, solve_mip
from gogh_core.allocation.pricing import Pricer
from gogh_core.bench.problems import churned, generate
from gogh_core.domain import Slot


@pytest.fixture(scope="module")
def small() -> Problem:
    return generate(20, 48, 3)


def again(problem: Problem, made) -> Problem:
    return churned(problem, made, 0.0, 0)


def test_a_plan_planned_again_moves_nobody(small):
    made = plan(small, gap=0.02, time_limit_s=60)
    follow = again(small, made)
    second = plan(follow, gap=0.02, time_limit_s=60)
    assert verify(follow, second) == []
    assert second.moves == ()
    assert second.stops == ()


@pytest.mark.e2e
def test_scaling_watts_joules_and_penalties_scales_the_cost():
    problem = generate(8, 16, 5)
    one = plan(problem, gap=0.0, time_limit_s=60)
    doubled = replace(
        problem,
        waiting_penalty_w=2 * problem.waiting_penalty_w,
        gpu_types={name: 2 * idle for name, idle in problem.gpu_types.items()},
        servers=[replace(s, base_w=2 * s.base_w) for s in problem.servers],
        jobs=[replace(j, move_cost_j=2 * j.move_cost_j) for j in problem.jobs],
        options=[replace(o, power_w=2 * o.power_w) for o in problem.table],
    )
    two = plan(doubled, gap=0.0, time_limit_s=60)
    if one.status == two.status == "optimal":
        assert two.cost_w == pytest.approx(2 * one.cost_w)


@pytest.mark.e2e
def test_adding_a_server_never_raises_a_proven_cost():
    problem = generate(6, 16, 1)
    one = plan(problem, gap=0.0, time_limit_s=60)
    extra = ProblemServer("extra", problem.servers[0].gpu_type, 8, 100.0, on=False)
    two = plan(replace(problem, servers=[*problem.servers, extra]), gap=0.0, time_limit_s=60)
    assert two.bound_w <= one.cost_w + 1e-6 * one.cost_w
    if one.status == two.status == "optimal":
        assert two.cost_w <= one.cost_w + 1e-6 * one.cost_w


@pytest.mark.e2e
def test_removing_an_option_never_lowers_a_proven_cost():
    problem = generate(6, 16, 2)
    one = plan(problem, gap=0.0, time_limit_s=60)
    fewer = [o for o in problem.table if not (len(o.classes) == 2 and o.gpu_type == "t4")]
    two = plan(replace(problem, options=fewer), gap=0.0, time_limit_s=60)
    assert two.cost_w >= one.bound_w - 1e-6 * one.cost_w


def test_the_lp_in_process_and_through_pyomo_agree(small):
    master = Master(Compiled(small))
    Pricer(master).first_columns()
    lp = Glpk(master.program)
    lp.sync()
    lp.start_from(master.wait_columns)
    inside = lp.solve()
    lp.close()
    part = Part(master.program, range(len(master.program.columns)), {}, {}, integer=False)
    outside = solve_mip(part, solver="glpk", gap=0.0, time_s=60)
    assert outside.found is not None
    cost = sum(master.program.columns[i].cost * value for i, value in outside.found.items())
    assert inside.good
    assert inside.cost == pytest.approx(cost, rel=1e-6)


@pytest.mark.e2e
def test_highs_solves_the_same_model(small):
    made = plan(small, solver="highs", gap=0.02, time_limit_s=60)
    assert verify(small, made) == []
    assert made.solver == "highs"


def test_golden_lp_of_the_smallest_problem(tmp_path, request):
    options = [
        Option("t", 1, ("A",), (4.0,), 100.0),
        Option("t", 1, ("A", "A"), (3.0, 3.0), 120.0),
    ]
    servers = [ProblemServer("s1", "t", 2, 50.0)]
    jobs = [
        ProblemJob("a", "A", at=(Slot("s1", (0,)),), move_cost_j=300.0, owner="x"),
        ProblemJob("b", "A", required_throughput=3.0, owner="x"),
    ]
    problem = Problem(300.0, 1000.0, {"t": 10.0}, servers, jobs, options, 900.0, 1, {"x": 3})
    master = Master(Compiled(problem))
    Pricer(master).first_columns()
    model = build_model(Part(master.program, range(len(master.program.columns)), {}, {}))
    path = tmp_path / "model.lp"
    model.write(str(path), io_options={"symbolic_solver_labels": True})
    golden = request.path.parent / "golden" / "smallest.lp"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("\\*")]
    if os.environ.get("GOGH_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text("\n".join(lines) + "\n")
    assert lines == golden.read_text().splitlines()


@pytest.mark.e2e
@pytest.mark.parametrize("body", ["exit 1", "echo nonsense", "kill -9 $$"])
def test_a_broken_glpsol_still_gives_a_verified_plan(small, tmp_path, monkeypatch, body):
    fake = tmp_path / "glpsol"
    fake.write_text(f"#!/bin/sh\n{body}\n")
    fake.chmod(fake.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    made = plan(small, gap=0.001, time_limit_s=8)
    assert verify(small, made) == []
    assert made.placements


def test_a_job_that_just_started_is_left_alone():
    options = [Option("t", 1, ("A",), (4.0,), 100.0)]
    servers = [ProblemServer("s1", "t", 1, 500.0), ProblemServer("s2", "t", 2, 50.0, on=False)]
    job = ProblemJob("a", "A", at=(Slot("s1", (0,)),), move_cost_j=300.0, since_s=10.0)
    problem = Problem(300.0, 5000.0, {"t": 10.0}, servers, [job], options)
    assert [move.job for move in plan(problem, gap=0.0).moves] == ["a"]
    left = plan(replace(problem, limits=Limits(min_runtime_s=60.0)), gap=0.0)
    assert left.moves == ()


def test_a_cycle_of_moves_holds_one_job():
    options = [
        Option("t", 1, ("A",), (4.0,), 10.0),
        Option("u", 1, ("A",), (4.0,), 500.0),
        Option("t", 1, ("B",), (4.0,), 500.0),
        Option("u", 1, ("B",), (4.0,), 10.0),
    ]
    servers = [ProblemServer("s1", "t", 1, 50.0), ProblemServer("s2", "u", 1, 50.0)]
    jobs = [
        ProblemJob("a", "A", at=(Slot("s2", (0,)),), move_cost_j=300.0),
        ProblemJob("b", "B", at=(Slot("s1", (0,)),), move_cost_j=300.0),
    ]
    problem = Problem(300.0, 5000.0, {"t": 10.0, "u": 10.0}, servers, jobs, options)
    made = plan(problem, gap=0.0)
    assert len(made.moves) == 2
    assert sum(move.held for move in made.moves) == 1
    assert verify(problem, made) == []
    unheld = replace(made, moves=tuple(replace(move, held=False) for move in made.moves))
    assert any("has not left" in text for text in verify(problem, unheld))


def test_a_gang_larger_than_a_server_fills_whole_servers():
    options = [Option("t", 4, ("A",), (4.0,), 400.0), Option("t", 1, ("A",), (1.0,), 100.0)]
    servers = [ProblemServer(f"s{i}", "t", 2, 50.0) for i in range(3)]
    jobs = [
        ProblemJob("big", "A", gpu_counts=(4,), required_throughput=4.0),
        ProblemJob("one", "A", required_throughput=1.0),
    ]
    problem = Problem(300.0, 5000.0, {"t": 10.0}, servers, jobs, options)
    made = plan(problem, gap=0.0)
    assert verify(problem, made) == []
    big = next(p for p in made.placements if p.job == "big")
    assert sorted(len(slot.gpus) for slot in big.slots) == [2, 2]
    assert made.waiting == ()


@pytest.mark.e2e
def test_the_time_limit_is_kept_with_something_to_show():
    problem = generate(600, 1200, 0)
    made = plan(problem, gap=0.0, time_limit_s=3)
    assert verify(problem, made) == []
    assert made.placements


@pytest.mark.e2e
def test_after_churn_few_others_move():
    problem = generate(200, 420, 0)
    first = plan(problem, gap=0.01, time_limit_s=120)
    later = churned(problem, first, 0.05, 0)
    made = plan(later, gap=0.007, time_limit_s=120)
    assert verify(later, made) == []
    running = sum(bool(job.at) for job in later.jobs)
    assert len(made.moves) + len(made.stops) <= max(3, 0.05 * running)
