"""Problems that random testing found and that were once planned, proven or refused wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from gogh_core.allocation import load_problem, plan, verify
from tests.allocation.brute import best_cost

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_once_wrong_and_now_as_good_as_brute_force(path):
    problem = load_problem(path)
    made = plan(problem, gap=0.0, time_limit_s=60)
    assert verify(problem, made) == []
    best = best_cost(problem)
    if best == float("inf"):
        assert made.status == "infeasible"
    else:
        assert made.status == "optimal"
        assert made.cost_w == pytest.approx(best)


def test_there_are_cases():
    assert len(CASES) >= 8
