"""The planner: exact on small problems, metamorphic, replanning, limits, broken solvers."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from gogh_core.allocation import (
    Limits,
    Option,
    Problem,
    ProblemJob,
    ProblemServer,
    plan,
    planner,
    verify,
)
from gogh_core.allocation.compiled import Compiled
from gogh_core.allocation.lp import Simplex
from gogh_core.allocation.lp_outside import Outside
from gogh_core.allocation.master import Master
from gogh_core.allocation.mip import Part, build_model, solve_mip
from gogh_core.allocation.pricing import Pricer
from gogh_core.allocation.start import first_basis
from gogh_core.bench.problems import churned, generate
from gogh_core.domain import Slot
from tests.allocation.brute import best_cost


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


def dual_cost(program, result) -> float:
    """What the prices of rows and columns say the program costs."""
    rows = zip(result.duals, program.row_low, program.row_high, strict=True)
    cost = sum(y * (low if y > 0 else high) for y, low, high in rows if abs(y) > 1e-9)
    bounds = [(c.lower, c.upper) for c in program.columns]
    pairs = zip(result.reduced, bounds, strict=True)
    return cost + sum(d * (low if d > 0 else high) for d, (low, high) in pairs if abs(d) > 1e-6)


def test_the_lp_in_process_and_through_pyomo_agree(small):
    master = Master(Compiled(small))
    Pricer(master).first_columns()
    lp = Simplex(master.program)
    lp.sync()
    lp.start_from(first_basis(master))
    inside = lp.solve()
    lp.close()
    other = Outside(master.program)
    other.sync()
    apart = other.solve()
    assert apart.good
    assert apart.cost == pytest.approx(inside.cost, rel=1e-6)
    for result in (inside, apart):
        assert dual_cost(master.program, result) == pytest.approx(inside.cost, rel=1e-6)
    part = Part(master.program, range(len(master.program.columns)), {}, {}, integer=False)
    assert inside.good
    for solver in ("glpk", "highs"):
        outside = solve_mip(part, solver=solver, gap=0.0, time_s=60)
        assert outside.found is not None
        cost = sum(master.program.columns[i].cost * value for i, value in outside.found.items())
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
def test_after_churn_few_others_move():
    problem = generate(200, 420, 0)
    first = plan(problem, gap=0.01, time_limit_s=120)
    later = churned(problem, first, 0.05, 0)
    made = plan(later, gap=0.007, time_limit_s=120)
    assert verify(later, made) == []
    running = sum(bool(job.at) for job in later.jobs)
    assert len(made.moves) + len(made.stops) <= max(3, 0.05 * running)


def held_servers(priority: float) -> Problem:
    """Two servers of four GPUs, on each two jobs too young to move; a gang of four waits."""
    options = [
        Option("h100", 1, ("one",), (1.0,), 300.0),
        Option("h100", 4, ("four",), (4.0,), 1200.0),
    ]
    servers = [ProblemServer(name, "h100", 4, 400.0) for name in ("a", "b")]
    jobs = [
        ProblemJob(
            f"{server}{gpu}",
            "one",
            required_throughput=1.0,
            at=(Slot(server, (gpu,)),),
            movable=False,
        )
        for server in ("a", "b")
        for gpu in (0, 1)
    ]
    gang = ProblemJob("gang", "four", gpu_counts=(4,), required_throughput=4.0, priority=priority)
    return Problem(300.0, 10000.0, {"h100": 70.0}, servers, [*jobs, gang], options)


def test_a_gang_that_finds_gpus_on_two_servers_only_waits_and_that_is_proven():
    problem = held_servers(1.0)
    made = plan(problem, gap=0.001)
    assert verify(problem, made) == []
    assert (made.status, made.stops) == ("optimal", ())
    [waits] = made.waiting
    assert waits.job == "gang"
    assert "may not move" in waits.reason


def test_who_matters_more_takes_the_place_of_who_may_not_move():
    problem = held_servers(3.0)
    made = plan(problem, gap=0.001)
    assert verify(problem, made) == []
    assert made.cost_w == pytest.approx(best_cost(problem))
    assert len(made.stops) == 2
    assert {stop.job[0] for stop in made.stops} in ({"a"}, {"b"})


def test_a_serving_job_that_stays_is_proven_beside_the_one_of_its_class_that_waits():
    options = [
        Option("t4", 1, ("serve",), (10.0,), 70.0),
        Option("t4", 1, ("serve", "serve"), (7.0, 7.0), 75.0),
        Option("t4", 1, ("train",), (5.0,), 70.0),
        Option("t4", 1, ("serve", "train"), (6.0, 3.0), 75.0),
    ]
    servers = [ProblemServer(name, "t4", 4, 200.0) for name in ("a", "b", "c")]
    jobs = [
        ProblemJob(
            f"run-{name}",
            "serve",
            "spread",
            max_gpus=3,
            required_throughput=18.0,
            at=(Slot(name, (0,)), Slot(name, (1,))),
            movable=False,
        )
        for name in ("a", "b", "c")
    ]
    jobs.append(ProblemJob("new", "serve", "spread", max_gpus=3, required_throughput=13.0))
    jobs += [ProblemJob(f"train-{n}", "train", required_throughput=2.5) for n in range(4)]
    problem = Problem(300.0, 10000.0, {"t4": 10.0}, servers, jobs, options)
    made = plan(problem, gap=0.002)
    assert verify(problem, made) == []
    assert (made.status, made.waiting) == ("optimal", ())


def test_who_waits_for_one_gpu_type_is_told_which():
    options = [Option("new", 1, ("A",), (9.0,), 100.0), Option("old", 1, ("A",), (1.0,), 50.0)]
    servers = [ProblemServer("s1", "new", 1, 50.0), ProblemServer("s2", "old", 2, 50.0)]
    jobs = [
        ProblemJob("first", "A", required_throughput=5.0, priority=2.0),
        ProblemJob("second", "A", required_throughput=5.0),
    ]
    made = plan(Problem(300.0, 1000.0, {"new": 5.0, "old": 5.0}, servers, jobs, options), gap=0.0)
    (waiting,) = made.waiting
    assert waiting.job == "second"
    assert waiting.reason == (
        "every GPU it could use (new) is taken by jobs that are worth more: first"
    )


def test_an_infeasible_plan_passes_the_verifier_too(monkeypatch):
    at = (Slot("s1", (0,)),)
    options = [Option("t", 1, ("A",), (1.0,), 50.0)]
    servers = [ProblemServer("s1", "t", 1, 50.0, True, drain=True)]
    jobs = [ProblemJob("pinned", "A", required_throughput=1.0, at=at, pinned=True)]
    problem = Problem(300.0, 1000.0, {"t": 5.0}, servers, jobs, options)
    assert verify(problem, plan(problem)) == []
    monkeypatch.setattr(planner, "verify", lambda *_: ["no proof"])
    made = plan(problem)
    assert made.status == "infeasible"
    assert "the verifier cannot prove it" in made.notes[-1]


def test_a_cluster_without_jobs_is_planned():
    problem = Problem(
        300.0,
        10_000.0,
        {"v100": 40.0},
        [ProblemServer("s", "v100", 4, 200.0)],
        [],
        [Option("v100", 1, ("a",), (1.0,), 200.0)],
    )
    made = plan(problem, gap=0.0)
    assert verify(problem, made) == []
    assert [(switch.id, switch.action) for switch in made.servers] == [("s", "off")]
