"""Whatever happens to the solver, a verified plan leaves in time and says what happened."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator

import pytest

from gogh_core.allocation import Problem, greedy, plan, verify
from gogh_core.bench.problems import generate

FAKES = {
    "it exits with an error": "echo 'glp_simplex: failed' >&2; exit 1",
    "it is killed": "kill -9 $$",
    "it is out of memory": (
        'echo "Error: no memory available" >&2; '
        "echo 'Error detected in file env/alloc.c at line 72' >&2; kill -6 $$"
    ),
    "it prints nonsense": "echo '????'; for a in \"$@\"; do :; done; exit 0",
    "it writes a solution of nonsense": (
        'while [ $# -gt 1 ]; do [ "$1" = "--write" ] && echo "s mip x y z" > "$2"; shift; done; '
        "echo 'INTEGER OPTIMAL SOLUTION FOUND'"
    ),
    "it never ends": "exec sleep 600",
}


@pytest.fixture(scope="module")
def problem() -> Problem:
    """One whose gap needs the solver: rounding alone does not reach it."""
    return generate(20, 48, 3)


@pytest.fixture
def path(monkeypatch) -> Iterator[Callable[[str], None]]:
    """Sets PATH and lets Pyomo, which remembers where it found glpsol, look again."""
    from pyomo.common import Executable

    def set_to(value: str) -> None:
        monkeypatch.setenv("PATH", value)
        Executable("glpsol").rehash()

    yield set_to
    monkeypatch.undo()
    Executable("glpsol").rehash()


def fake_glpsol(folder, body: str) -> str:
    fake = folder / "glpsol"
    fake.write_text(
        f'#!/bin/sh\ncase "$1" in --version|-v) echo "GLPSOL: GLPK LP/MIP Solver, v5.0"; exit 0;; '
        f"esac\n{body}\n"
    )
    fake.chmod(fake.stat().st_mode | stat.S_IEXEC)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.e2e
@pytest.mark.parametrize("what", FAKES)
def test_a_broken_glpsol_gives_a_labelled_and_verified_plan(what, problem, tmp_path, path):
    path(fake_glpsol(tmp_path, FAKES[what]))
    limit_s = 8
    started = time.monotonic()
    made = plan(problem, gap=0.0, time_limit_s=limit_s)
    took_s = time.monotonic() - started
    assert verify(problem, made) == []
    assert made.placements
    assert made.status in ("optimal", "feasible", "time_limit", "greedy")
    assert any("glpk" in note for note in made.notes), made.notes
    assert took_s < 300, "a solver that sleeps for ten minutes must not hold the plan"


def test_without_glpsol_highs_serves_and_the_plan_says_so(problem, tmp_path, path):
    path(str(tmp_path))
    made = plan(problem, gap=0.02, time_limit_s=30)
    assert verify(problem, made) == []
    assert made.solver in ("highs", "greedy")
    assert "glpk is not installed; highs served instead" in made.notes


def test_without_highspy_glpsol_solves_everything_and_the_plan_says_so(problem, monkeypatch):
    whole = plan(problem, gap=0.02, time_limit_s=30)
    monkeypatch.setitem(__import__("sys").modules, "highspy", None)
    made = plan(problem, gap=0.02, time_limit_s=30)
    assert verify(problem, made) == []
    assert made.status == whole.status == "optimal"
    assert made.cost_w <= whole.cost_w * 1.02
    assert any("highspy is not installed" in note for note in made.notes)
    assert not any("highspy" in note for note in whole.notes)


def test_without_any_solver_the_plan_is_greedy_and_says_so(problem, tmp_path, path, monkeypatch):
    path(str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "highspy", None)
    made = plan(problem, gap=0.02, time_limit_s=30)
    assert verify(problem, made) == []
    assert made.placements
    assert any("no solver is installed" in note for note in made.notes)


def test_a_greedy_plan_is_labelled(problem):
    made = greedy(problem)
    assert made.status == made.solver == "greedy"
    assert made.notes
    assert verify(problem, made) == []


@pytest.mark.parametrize("limit_s", [0.05, 0.5])
def test_a_time_limit_too_short_for_anything_still_gives_a_plan(limit_s):
    problem = generate(150, 300, 0)
    made = plan(problem, gap=0.0, time_limit_s=limit_s)
    assert verify(problem, made) == []
    assert made.placements
    assert made.status in ("time_limit", "greedy", "feasible")


@pytest.mark.e2e
def test_the_time_limit_is_kept_with_something_to_show():
    problem = generate(600, 1200, 0)
    made = plan(problem, gap=0.0, time_limit_s=3)
    assert verify(problem, made) == []
    assert made.placements
    assert made.status in ("time_limit", "greedy", "feasible")
