"""Names that tell, and a first line that says what to do."""

from __future__ import annotations

from dataclasses import replace

from flows.names import advice, change_percent, plan_name
from gogh_core.errors import ClusterUnavailable, InvalidInput
from tests.flows.examples import NOW, PLAN


def test_the_name_of_a_run_tells_what_came_of_it():
    name = plan_name(NOW, PLAN, power_w=820, before_w=1000)
    assert name == "plan 12:05 · 3 jobs · 2 waiting · −18 % W · gap 0.4 %"


def test_without_a_plan_before_there_is_nothing_to_compare():
    assert "% W" not in plan_name(NOW, PLAN, power_w=820)
    assert change_percent(820, 0.0) is None
    assert change_percent(1000.1, 1000) == "±0 % W"
    assert change_percent(1100, 1000) == "+10 % W"


def test_what_was_done_without_stands_in_the_name():
    degraded = ["no new data: source spool gave no answer", "P2 not retrained", "third", "fourth"]
    name = plan_name(NOW, PLAN, degraded=degraded)
    assert name.endswith("⚠ no new data · ⚠ P2 not retrained · ⚠ 2 more")


def test_a_plan_out_of_time_or_without_solver_says_so():
    assert "greedy" in plan_name(NOW, replace(PLAN, status="greedy"))
    assert "time limit" in plan_name(NOW, replace(PLAN, status="time_limit"))
    infeasible = plan_name(NOW, replace(PLAN, status="infeasible", placements=()))
    assert "infeasible" in infeasible
    assert "gap" not in infeasible
    assert plan_name(NOW, None) == "plan 12:05 · no plan"


def test_the_first_line_of_a_failure_is_what_to_do():
    error = ClusterUnavailable("no answer in 10 s", where="slurm", todo="is slurmctld running?")
    assert advice(error).startswith("To do: is slurmctld running?")
    assert "slurm: no answer in 10 s" in advice(error)
    assert "To do: " in advice(InvalidInput("gap is 2"))
