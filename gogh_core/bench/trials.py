"""One trial of `gogh bench allocation`: one problem, one method, in a process of its own.

The rows of the table are here with what is asked of them. A trial runs in a child process with a
limit of memory, so that what it takes is its own and what dies, dies alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gogh_core.allocation import Problem, load_problem, plan, rival_plan
from gogh_core.bench.problems import churned, generate, write_problem, young
from gogh_core.domain import Plan

__all__ = ["OURS", "ROWS", "SLOW", "Row", "Trial", "run_trial"]

OURS = ("glpk", "highs")
SLOW = ("whole, HiGHS", "naive, GLPK")
"""Tried on the first problem of a row only: they take all the time they are given."""
_ALL = ("glpk", "highs", "first fit", "best fit", "whole, HiGHS", "naive, GLPK")
_FAST = ("glpk", "highs", "first fit", "best fit", "whole, HiGHS")
_HUGE = ("glpk", "first fit", "best fit")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of problems: what is asked of the planner, and which methods are tried on it."""

    name: str
    make: Callable[[int], Problem]
    gap: float
    goal_s: float
    limit_s: float
    memory_mb: int = 4000
    methods: tuple[str, ...] = _FAST
    seeds: int = 3
    jobs: int = 0
    """Of the family over which growth is shown; 0: not one of it."""


def _churn(seed: int) -> Problem:
    first = generate(1000, 2048, seed)
    return churned(first, plan(first, gap=0.003), 0.05, seed)


def _mixed(seed: int) -> Problem:
    """Training and serving: after churn, with four of five running jobs too young to move."""
    first = generate(500, 1024, seed, spread=0.2)
    return young(churned(first, plan(first, gap=0.01), 0.15, seed), 0.8, seed)


def _own_classes(seed: int) -> Problem:
    """Written and read as a file with its options in Parquet, as a catalog would give it."""
    with tempfile.TemporaryDirectory(prefix="gogh-bench-") as folder:
        path = Path(folder) / "problem.json"
        write_problem(generate(1000, 2048, seed, own_classes=True), path)
        return load_problem(path)


def _plain(jobs: int, gpus: int, **more: Any) -> Callable[[int], Problem]:
    return lambda seed: generate(jobs, gpus, seed, **more)


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        Row("10/16", _plain(10, 16), 0.005, 5, 30, methods=_ALL),
        Row("20/40", _plain(20, 40), 0.005, 5, 30, methods=_ALL),
        Row("30/200", _plain(30, 200), 0.005, 5, 20, methods=_ALL),
        Row("60/200", _plain(60, 200), 0.005, 5, 20, methods=_FAST),
        Row("100/200", _plain(100, 200), 0.005, 5, 20, methods=_ALL, jobs=100),
        Row("300/640", _plain(300, 640), 0.003, 3, 20, jobs=300),
        Row("1000/2048", _plain(1000, 2048), 0.003, 3, 20, jobs=1000),
        Row("1000/2048 churn", _churn, 0.007, 4, 20, methods=("glpk", "highs", "best fit")),
        Row("1000/700 overloaded", _plain(1000, 700, waiting_penalty_w=2000.0), 0.005, 4, 20),
        Row("2000/4096", _plain(2000, 4096), 0.003, 6, 30, jobs=2000),
        Row(
            "10000/20480",
            _plain(10000, 20480),
            0.002,
            30,
            120,
            memory_mb=2000,
            methods=_HUGE,
            seeds=2,
            jobs=10000,
        ),
        Row("1000/2048 own classes", _own_classes, 0.005, 60, 120, 6000, methods=_HUGE, seeds=2),
        Row(
            "30/60 spread",
            _plain(30, 60, spread=True),
            0.01,
            60,
            60,
            methods=("glpk", "best fit", "naive, GLPK"),
        ),
        Row("500/1024 mixed", _plain(500, 1024, spread=0.2), 0.01, 30, 60, methods=_HUGE),
        Row("500/1024 mixed, young", _mixed, 0.01, 30, 60, methods=("glpk", "best fit")),
        Row(
            "100000/204800",
            _plain(100000, 204800),
            0.01,
            600,
            600,
            memory_mb=8000,
            methods=("glpk",),
            seeds=1,
            jobs=100000,
        ),
    )
}


@dataclass(slots=True)
class Trial:
    """What one method did with one problem; `cost_w` is None when it gave no plan."""

    row: str
    method: str
    seed: int
    seconds: float = 0.0
    cpu_s: float = 0.0
    memory_mb: float = 0.0
    cost_w: float | None = None
    bound_w: float = 0.0
    moved: float = 0.0
    """Running jobs that move or stop, of those that run."""
    status: str = "died"


def run_trial(row: Row, method: str, seed: int) -> Trial:
    """A trial in a child process; what dies or takes far too long is a trial without a plan."""
    command = [sys.executable, "-m", "gogh_core.bench.trials", row.name, method, str(seed)]
    started = time.monotonic()
    # Making the problem is not measured but takes its time too.
    patience_s = 4 * row.limit_s + 120
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        out, err = child.communicate(timeout=patience_s)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        if isinstance(error, KeyboardInterrupt):
            raise
        spent = time.monotonic() - started
        return Trial(row.name, method, seed, spent, status="did not end")
    for line in out.splitlines():
        if line.startswith("{"):
            return Trial(**json.loads(line))
    why = "out of memory" if "MemoryError" in err or "alloc" in err else f"exit {child.returncode}"
    return Trial(row.name, method, seed, time.monotonic() - started, status=why)


def _trial(row: Row, method: str, seed: int) -> Trial:
    import pyomo.environ  # noqa: F401 - its import is not what is measured

    problem = row.make(seed)
    limit = row.memory_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    trial = Trial(row.name, method, seed)
    started, before = time.monotonic(), _cpu_s()
    made: Plan | None = None
    try:
        if method in OURS:
            solver: Any = method
            made = plan(problem, solver=solver, gap=row.gap, time_limit_s=row.limit_s)
        else:
            made = rival_plan(method, problem, gap=row.gap, time_limit_s=row.limit_s)
    except MemoryError:
        trial.status = "out of memory"
    else:
        trial.status = "nothing found" if made is None else made.status
    trial.seconds, trial.cpu_s = time.monotonic() - started, _cpu_s() - before
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    trial.memory_mb = max(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1024
    if made is not None:
        running = sum(bool(job.at) for job in problem.jobs)
        trial.cost_w, trial.bound_w = made.cost_w, made.bound_w
        trial.moved = (len(made.moves) + len(made.stops)) / running if running else 0.0
    return trial


def _cpu_s() -> float:
    """CPU seconds of this process and of the solvers it started."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    print(json.dumps(asdict(_trial(ROWS[sys.argv[1]], sys.argv[2], int(sys.argv[3])))))
