"""Work ends the search, not the clock: the same problem has the same plan on every machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gogh_core.allocation import Effort, plan
from gogh_core.allocation.effort import iterations_for, work_of_lp
from gogh_core.bench.problems import generate
from gogh_core.domain import Plan

WORK = 1.0
"""Less than the problem needs, so that a limit ends the search."""
SPENT = "the search ended after all the work it was given"
STRUCK = "the time limit stopped the search"


def placed(made: Plan) -> bytes:
    told = made.to_dict()
    return json.dumps(
        [told[name] for name in ("status", "cost_w", "placements", "waiting")]
    ).encode()


def hard() -> Any:
    """Training and serving on 60 GPUs, which takes about five times the work that is given."""
    return generate(30, 60, 0, spread=True)


@pytest.fixture(scope="module")
def usual() -> Plan:
    made = plan(hard(), gap=0.0, effort=Effort(WORK, time_limit_s=600))
    assert SPENT in made.notes
    assert made.status == "feasible"
    return made


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_a_clock_that_runs_faster_or_slower_changes_nothing(
    usual: Plan, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: factor * real())
    effort = Effort(WORK, time_limit_s=600, clock=lambda: factor * real())
    assert placed(plan(hard(), gap=0.0, effort=effort)) == placed(usual)
    assert not effort.clock_struck


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_order_of_sets_changes_nothing(usual: Plan, seed: str) -> None:
    code = (
        "import sys\n"
        "from tests.allocation.test_effort import WORK, Effort, hard, placed, plan\n"
        "made = plan(hard(), gap=0.0, effort=Effort(WORK, time_limit_s=600))\n"
        "sys.stdout.buffer.write(placed(made))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True, timeout=300
    )
    assert done.stdout == placed(usual)


def test_where_the_clock_struck_the_plan_says_so() -> None:
    effort = Effort(1e6, time_limit_s=2.0)
    made = plan(hard(), gap=0.0, effort=effort)
    assert effort.clock_struck
    assert made.status in ("time_limit", "greedy")
    assert any(note.startswith(STRUCK) for note in made.notes)


def test_a_time_limit_alone_gives_work_that_ends_before_it() -> None:
    assert Effort(time_limit_s=60).limit == 30


def test_work_of_a_part_is_work_of_the_whole() -> None:
    whole = Effort(10)
    whole.spend(2)
    part = whole.part(0.5)
    assert part.left == 4
    part.spend(4)
    assert part.spent
    assert not whole.spent
    assert whole.left == 4


def test_a_part_may_have_some_work_when_there_is_none_left() -> None:
    whole = Effort(1)
    whole.spend(2)
    assert whole.part(0.6, least=0.5).left == pytest.approx(0.5)
    assert whole.part().spent


def test_the_emergency_stop_of_a_part_is_its_own() -> None:
    now = [0.0]
    whole = Effort(10, time_limit_s=100, clock=lambda: now[0])
    part = whole.part()
    part.stop_by(30)
    now[0] = 50
    assert part.over()
    assert not part.spent
    assert whole.clock_struck
    assert not whole.over()


@given(st.floats(1e-3, 1e3), st.integers(1, 100_000))
def test_iterations_are_as_many_as_the_work_allows(work: float, rows: int) -> None:
    most = iterations_for(work, rows)
    assert most >= 1
    fixed = work_of_lp(0, rows, 0)
    assert work_of_lp(most, rows, 0) - fixed <= max(work, work_of_lp(1, rows, 0) - fixed) * 1.001
