"""What an explanation says is true: brute force says so."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings

from gogh_core.allocation import (
    Limits,
    Option,
    Problem,
    ProblemJob,
    ProblemServer,
    decisions,
    explain,
    explain_again,
    greedy,
    plan,
)
from gogh_core.allocation.explain_prices import Estimates
from gogh_core.bench.problems import generate
from gogh_core.errors import InvalidInput
from tests.allocation import plans
from tests.allocation.brute import INF, best_cost
from tests.allocation.strategies import problems
from tests.allocation.test_random_problems import QUIET


def rows_by_name(problem: Problem, made, job) -> dict[str, list[int]]:
    estimates = Estimates(problem, made, job)
    found: dict[str, list[int]] = {}
    for row in estimates.order():
        found.setdefault(estimates.name(row), []).append(row)
    return found


def told_truly(problem: Problem) -> tuple[int, int, int]:
    """(alternatives, limits, changes) of all jobs that were compared with brute force."""
    problem = replace(problem, limits=Limits())
    made = plan(problem, gap=0.0, time_limit_s=30)
    if made.status != "optimal":
        return 0, 0, 0
    options = limits = changes = 0
    for job in problem.jobs:
        told = explain(problem, made, job.id, time_limit_s=24)
        assert job.id in told.decision
        assert decisions(problem, made, [job.id]) == {job.id: told.decision}
        rows = rows_by_name(problem, made, job)
        for option in told.options:
            if option.what not in rows or not option.sure:
                continue
            (row,) = rows[option.what]
            forced = best_cost(problem, runs=(job.id, problem.table[row]))
            said = INF if option.more is None else made.cost_w + option.more.cost
            assert said == pytest.approx(forced, rel=1e-6, abs=1e-5), option
            options += 1
        for sentence in told.binding:
            assert re.search(r"would (draw|have) \d+", sentence)
            limits += 1
        for question in told.questions:
            if not question.sure:
                continue
            run = best_cost(question.problem, runs=(job.id, None))
            assert run <= best_cost(question.problem) + 1e-5, question.text
            changes += 1
    return options, limits, changes


def compared(examples: int, jobs: int) -> tuple[int, ...]:
    totals = [0, 0, 0]

    @settings(max_examples=examples, **QUIET)
    @given(problems(max_jobs=jobs, max_gpus=4))
    def run(problem: Problem) -> None:
        for at, count in enumerate(told_truly(problem)):
            totals[at] += count

    run()
    return tuple(totals)


def test_what_alternatives_cost_is_what_they_cost():
    options, _, _ = compared(4, 3)
    assert options >= 2


@pytest.mark.e2e
def test_what_alternatives_cost_and_what_would_help_on_many():
    options, _, changes = compared(25, 4)
    assert options >= 20
    assert changes >= 5


@pytest.mark.soak
def test_what_explanations_say_on_hundreds():
    options, limits, changes = compared(300, 5)
    assert min(options, limits, changes) >= 100


@pytest.fixture(scope="module")
def by_hand():
    problem = plans.problem()
    return problem, plan(problem, gap=0.0)


def test_every_job_is_explained_in_plain_sentences(by_hand):
    problem, made = by_hand
    for job in problem.jobs:
        lines = explain(problem, made, job.id).lines()
        assert lines[0].startswith(job.id)
        assert all(line.endswith(".") for line in lines)


def test_a_job_that_cannot_be_fast_enough_is_told_what_would_do(by_hand):
    problem, made = by_hand
    told = explain(problem, made, "no", time_limit_s=60)
    assert "waits" in told.decision
    assert "a requirement of at most 4 instead of 99" in told.changes[0]
    helped = plan(told.questions[0].problem, gap=0.0)
    assert "no" in {placement.job for placement in helped.placements}


def test_the_priority_that_is_said_is_the_one_that_makes_it_run():
    base = plans.problem()
    crowded = replace(base, power_cap_w=None, max_moves=None, quotas={})
    jobs = [replace(j, priority=0.01) if j.id == "g2" else j for j in crowded.jobs]
    problem = replace(crowded, jobs=jobs)
    made = plan(problem, gap=0.0)
    assert "g2" in {entry.job for entry in made.waiting}
    told = explain(problem, made, "g2", time_limit_s=60)
    said = next(text for text in told.changes if "priority above" in text)
    least = float(re.findall(r"above ([\d.]+)", said)[0])
    for factor, runs in ((1.02, True), (0.95, False)):
        jobs = [replace(j, priority=least * factor) if j.id == "g2" else j for j in problem.jobs]
        again = plan(replace(problem, jobs=jobs), gap=0.0)
        assert ("g2" in {p.job for p in again.placements}) is runs


def two_jobs(**limits) -> Problem:
    options = [Option("t", 1, ("A",), (4.0,), 100.0), Option("t", 1, ("A",), (2.0,), 60.0, 75.0)]
    jobs = [
        ProblemJob("high", "A", required_throughput=3.0, priority=2.0, owner="x"),
        ProblemJob("low", "A", required_throughput=3.0, owner="x"),
    ]
    servers = [ProblemServer("s1", "t", 2, 50.0)]
    return Problem(300.0, 1000.0, {"t": 10.0}, servers, jobs, options, **limits)


@pytest.mark.parametrize(
    ("limits", "words", "change"),
    [
        ({"power_cap_w": 180.0}, "no power cap (it is 180 W)", "a power cap of 251 W instead"),
        ({"quotas": {"x": 1}}, "a quota of 2 GPUs for 'x'", "a quota of 2 GPUs for 'x'"),
    ],
)
def test_a_limit_that_binds_is_named_with_what_it_costs(limits, words, change):
    problem = two_jobs(**limits)
    made = plan(problem, gap=0.0)
    assert [entry.job for entry in made.waiting] == ["low"]
    told = explain(problem, made, "low", time_limit_s=60)
    (said,) = [text for text in told.binding if words in text]
    free = plan(two_jobs(), gap=0.0)
    drawn = float(free.spent["power_w"]) - float(made.spent["power_w"])
    assert f"draw {drawn:.0f} W more and have 1000 less in penalties" in said
    (helped,) = [question for question in told.questions if change in question.text]
    again = plan(helped.problem, gap=0.0)
    assert "low" in {placement.job for placement in again.placements}


def test_a_change_that_helps_in_a_plan_not_proven_is_told_as_such(monkeypatch):
    problem = two_jobs(quotas={"x": 1})
    made = plan(problem, gap=0.0)
    monkeypatch.setattr(explain_again, "make_plan", lambda asked, **_: greedy(asked))
    told = explain(problem, made, "low", time_limit_s=60)
    (said,) = [text for text in told.changes if "quota" in text]
    assert "may run with a quota of 2 GPUs" in said
    assert "not proven" in said


def test_a_move_is_explained_with_what_staying_would_have_cost():
    problem = plans.problem()
    jobs = [replace(j, at=plans.at("s3", 1)) if j.id == "g2" else j for j in problem.jobs]
    servers = [
        replace(s, drain=False, base_w=900.0) if s.id == "s3" else s for s in problem.servers
    ]
    moving = replace(problem, jobs=jobs, servers=servers, max_moves=None)
    made = plan(moving, gap=0.0)
    assert "g2" in {move.job for move in made.moves}
    told = explain(moving, made, "g2", time_limit_s=60)
    (staying,) = [option for option in told.options if option.what == "Staying where it is"]
    pinned = [replace(j, pinned=True) if j.id == "g2" else j for j in moving.jobs]
    stayed = plan(replace(moving, jobs=pinned), gap=0.0)
    assert staying.more is not None
    assert staying.more.cost == pytest.approx(stayed.cost_w - made.cost_w)
    drawn = float(stayed.spent["power_w"]) - float(made.spent["power_w"])
    assert staying.more.power_w == pytest.approx(drawn)


def test_without_time_to_plan_again_prices_are_said_to_be_estimates():
    problem = generate(24, 8, 0)
    made = plan(problem, gap=0.02, time_limit_s=60)
    told = [explain(problem, made, job.id) for job in problem.jobs]
    said = [text for one in told for text in (*one.alternatives, *one.binding)]
    assert said
    assert all("about" in text and "by the prices" in text for text in said)
    assert any(one.changes for one in told if "waits" in one.decision)

    assert not any(re.search(r"\d W (more|less)|save", text) for text in said)
    assert all(o.more.power_w is None for one in told for o in one.options if o.more)


def test_a_gain_within_the_gap_is_not_told_as_a_gain():
    problem = two_jobs(quotas={"x": 1})
    made = plan(problem, gap=0.0)
    loose = replace(made, bound_w=made.cost_w - 5000.0, gap=0.5)
    told = explain(problem, loose, "low", time_limit_s=60)
    (blurred,) = told.binding
    assert "nothing that can be told apart from the gap (50.00%)" in blurred
    assert not re.search(r"\d W (more|less)", blurred)
    runs = explain(problem, loose, "high", time_limit_s=60)
    assert any("told apart from the gap" in text for text in runs.alternatives)


def test_a_certificate_of_nonsense_takes_only_the_estimates_away(by_hand):
    problem, made = by_hand
    for nonsense in ({"root": [1]}, {"root": {"capacity": ["x"] * 5, "jobs": 3}}, {"root": None}):
        told = explain(problem, replace(made, certificate=nonsense), "g2")
        assert told.decision.startswith("g2 runs")


def test_an_infeasible_plan_is_explained_by_its_reasons():
    problem = plans.problem()
    drained = [replace(s, drain=True) if s.id == "s2" else s for s in problem.servers]
    broken = replace(problem, servers=drained)
    told = explain(broken, plan(broken), "a1")
    assert "drained" in told.decision


def test_an_unknown_job_is_bad_input(by_hand):
    with pytest.raises(InvalidInput, match="not in the problem"):
        explain(*by_hand, "who")
