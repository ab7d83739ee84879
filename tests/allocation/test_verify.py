"""Mutants: a plan is broken in one way each, and the verifier names it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gogh_core.allocation import (
    Option,
    Problem,
    ProblemJob,
    ProblemServer,
    explain,
    plan,
    verify,
)
from gogh_core.domain import Plan, ServerSwitch, Slot


@pytest.fixture(scope="module")
def problem() -> Problem:
    classes = ("A", "B")
    options = [
        Option("t", m, (name,), (4.0 * m,), 100.0 * m) for m in (1, 2, 4) for name in classes
    ]
    options += [Option("t", 1, ("A", "B"), (3.0, 3.0), 120.0)]
    options += [Option("t", 1, ("A", "A"), (3.0, 3.0), 120.0)]
    options += [Option("t", 1, ("A",), (3.5,), 80.0, 75.0)]
    servers = [
        ProblemServer("s1", "t", 2, 50.0, on=True),
        ProblemServer("s2", "t", 2, 60.0, on=True, switch_cost_j=300.0),
        ProblemServer("s3", "t", 2, 500.0, on=True, drain=True),
        ProblemServer("s4", "t", 2, 70.0, on=False, off_w=5.0),
        ProblemServer("s5", "t", 2, 90.0, on=True, keep_on=True),
    ]
    jobs = [
        ProblemJob("a1", "A", required_throughput=3.0, at=(Slot("s1", (0,)),), move_cost_j=3e4),
        ProblemJob("a2", "A", required_throughput=3.0, owner="x", shareable="owner"),
        ProblemJob("b1", "B", required_throughput=3.0, shareable=False),
        ProblemJob("g2", "B", gpu_counts=(2,), required_throughput=8.0),
        ProblemJob("sp", "A", "spread", max_gpus=2, required_throughput=7.0, owner="y"),
        ProblemJob("dr", "B", at=(Slot("s3", (0,)),), move_cost_j=600.0),
        ProblemJob("pin", "A", at=(Slot("s2", (1,)),), pinned=True, surplus_j_per_step=1.0),
        ProblemJob("no", "A", required_throughput=99.0),
    ]
    return Problem(300.0, 5000.0, {"t": 10.0}, servers, jobs, options, 5000.0, 3, {"y": 3})


@pytest.fixture(scope="module")
def good(problem) -> Plan:
    made = plan(problem, gap=0.0)
    assert verify(problem, made) == []
    return made


def place(made: Plan, name: str, **changes) -> Plan:
    placements = list(made.placements)
    at = next(i for i, entry in enumerate(placements) if entry.job == name)
    placements[at] = replace(placements[at], **changes)
    return replace(made, placements=tuple(placements))


def without(made: Plan, job: str) -> Plan:
    return replace(made, placements=tuple(p for p in made.placements if p.job != job))


MUTANTS = {
    "an unknown job": lambda p: place(p, "b1", job="who"),
    "an unknown server": lambda p: place(p, "b1", slots=(Slot("s9", (0,)),)),
    "a GPU that does not exist": lambda p: place(p, "b1", slots=(Slot("s1", (7,)),)),
    "a job left out": lambda p: without(p, "b1"),
    "a gang placed twice": lambda p: replace(p, placements=(*p.placements, p.placements[0])),
    "a drained server used": lambda p: place(p, "b1", slots=(Slot("s3", (1,)),)),
    "a GPU taken by strangers": lambda p: place(
        p, "b1", slots=next(x.slots for x in p.placements if x.job == "pin")
    ),
    "an unshareable job sharing": lambda p: place(p, "b1", partner="a1"),
    "a pinned job moved": lambda p: place(p, "pin", slots=(Slot("s4", (1,)),)),
    "a gang on two servers": lambda p: place(p, "g2", slots=(Slot("s4", (0,)), Slot("s5", (0,)))),
    "a gang of the wrong size": lambda p: place(p, "g2", slots=(Slot("s4", (0,)),)),
    "an option that does not exist": lambda p: place(p, "b1", power_limit_w=12.0),
    "a throughput made up": lambda p: place(p, "b1", throughput=50.0),
    "a move left out": lambda p: replace(p, moves=()),
    "a switch left out": lambda p: replace(p, servers=p.servers[1:]),
    "a switch too many": lambda p: replace(p, servers=(*p.servers, ServerSwitch("s5", "off"))),
    "a cost too low": lambda p: replace(p, cost_w=p.cost_w - 1),
    "a cost too high": lambda p: replace(p, cost_w=p.cost_w + 1),
    "a bound too high": lambda p: replace(p, bound_w=p.bound_w + 5, cost_w=p.cost_w),
    "a gap made up": lambda p: replace(p, gap=p.gap + 0.01),
    "a certificate of nothing": lambda p: replace(p, certificate={}),
    "a certificate of nonsense": lambda p: replace(p, certificate={"root": {"jobs": [1]}}),
    "another problem": lambda p: replace(p, versions={"problem_sha256": "0"}),
    "spread too wide": lambda p: replace(
        p,
        placements=(
            *p.placements,
            *(replace(x, slots=(Slot("s4", (1,)),)) for x in p.placements[-1:]),
            *(replace(x, job="sp", partner=None) for x in p.placements[:1]),
        ),
    ),
}
TERMS = (
    "base_w",
    "idle_w",
    "off_w",
    "options_w",
    "moves_w",
    "stops_w",
    "switches_w",
    "waiting_w",
    "surplus_w",
)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_verifier_catches(name, problem, good):
    assert verify(problem, MUTANTS[name](good)) != []


@pytest.mark.parametrize("term", TERMS)
def test_the_verifier_catches_each_term_of_the_cost(term, problem, good):
    spent = {**good.spent, term: good.spent[term] + 2.0}
    assert any(term in text for text in verify(problem, replace(good, spent=spent)))


@pytest.mark.parametrize(
    "tightened",
    [
        {"power_cap_w": 100.0},
        {"max_moves": 0},
        {"quotas": {"y": 1}},
    ],
)
def test_the_verifier_catches_limits_that_the_plan_did_not_know(tightened, problem, good):
    tighter = replace(problem, **tightened)
    stripped = replace(good, versions={})
    assert verify(tighter, stripped) != []


def test_every_job_can_be_explained(problem, good):
    for job in problem.jobs:
        told = explain(problem, good, job.id)
        assert told.lines()
        assert job.id in told.decision
    assert "waits" in explain(problem, good, "no").decision
    assert "99" not in "".join(explain(problem, good, "no").changes)
