"""The name of a run tells what the plan draws, what it saves against what, and what came of it."""

from __future__ import annotations

from dataclasses import replace

from gogh_core.domain import Cycle
from gogh_core.planning import CycleReport, PlanDiff, Reference, Request
from tests.flows.examples import NOW, PLAN

DRAWS = replace(PLAN, spent={"power_w": 5120.0})
DIFF = PlanDiff(
    starts=(),
    moves=(),
    stops=(),
    stays=3,
    waiting=(),
    switches=(),
    now_w=100.0,
    planned_w=5120.0,
    running_now=3,
    running_planned=3,
    move_cost_j=0.0,
    switch_cost_j=0.0,
    reference=Reference(5810.0, 690.0),
)


def report(plan=DRAWS, **more) -> CycleReport:
    facts = {"outcome": "emitted", "diff": DIFF, **more}
    return CycleReport(cycle=Cycle(NOW, 0), request=Request(), plan=plan, **facts)


def test_the_name_says_what_the_plan_draws_and_saves_against_a_named_reference():
    assert report().name == (
        "plan 12:05 · 3 jobs · 2 waiting · 5,120 W · saves 690 W (12 %) on best fit · gap 0.4 %"
    )


def test_after_a_pause_the_name_compares_with_nothing_that_ran_before():
    """100 W now and 5,120 W planned: the plan runs other jobs, so that is no loss."""
    assert report().name == report(diff=replace(DIFF, now_w=5000.0)).name
    assert "W" in report(diff=None).name
    assert "best fit" not in report(diff=None).name


def test_what_was_done_without_stands_in_the_name():
    degraded = ("no new data: source spool gave no answer", "P2 not retrained", "third", "fourth")
    name = report(degraded=degraded).name
    assert name.endswith("⚠ no new data · ⚠ P2 not retrained · ⚠ 2 more")


def test_a_plan_out_of_time_or_without_solver_says_so():
    assert "greedy" in report(replace(DRAWS, status="greedy")).name
    assert "time limit" in report(replace(DRAWS, status="time_limit")).name
    infeasible = report(replace(PLAN, status="infeasible", placements=()), outcome="rejected").name
    assert "infeasible" in infeasible
    assert "gap" not in infeasible
    assert "W" not in infeasible
    assert report(None, outcome="superseded").name == "plan 12:05 · no plan · superseded"
    assert report().named("dry run").startswith("dry run 12:05 · ")


def test_a_lower_draw_pays_moves_back_only_when_the_same_jobs_run():
    moved = replace(DIFF, now_w=5300.0, move_cost_j=18_000.0)
    assert moved.payback_s == 100.0
    started = replace(moved, starts=(("a", ()),))
    assert started.payback_s is None
