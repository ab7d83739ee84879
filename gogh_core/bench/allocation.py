"""`gogh bench allocation` and `gogh bench problem`: how good and how fast plans are.

One run, one table: every row of problems over several seeds (median and worst), and on the same
problems the greedy rule (best fit by energy) and HiGHS in the place of glpsol.
"""

from __future__ import annotations

import json
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gogh_core.allocation import Problem, greedy, plan
from gogh_core.bench.problems import churned, generate, write_problem

__all__ = ["Row", "register_bench", "run"]


@dataclass(slots=True)
class Row:
    """One line of the table."""

    problem: str
    method: str
    seeds: int
    seconds: float
    worst_seconds: float
    cpu_s: float
    gap: float
    worst_gap: float
    moved: float
    memory_mb: float
    statuses: str


_QUICK = ("30/200", "100/200", "300/640", "1000/2048")
_CASES: dict[str, tuple[Callable[[int], Problem], float, float]] = {
    "30/200": (lambda seed: generate(30, 200, seed), 0.005, 20.0),
    "100/200": (lambda seed: generate(100, 200, seed), 0.005, 20.0),
    "300/640": (lambda seed: generate(300, 640, seed), 0.003, 60.0),
    "1000/2048": (lambda seed: generate(1000, 2048, seed), 0.003, 60.0),
    "1000/2048 churn": (lambda seed: _churn(1000, 2048, seed), 0.007, 60.0),
    "1000/700 overloaded": (
        lambda seed: generate(1000, 700, seed, waiting_penalty_w=2000.0),
        0.005,
        60.0,
    ),
    "2000/4096": (lambda seed: generate(2000, 4096, seed), 0.003, 120.0),
    "10000/20480": (lambda seed: generate(10000, 20480, seed), 0.002, 300.0),
    "100000/204800": (lambda seed: generate(100000, 204800, seed), 0.01, 900.0),
    "1000/2048 own classes": (
        lambda seed: generate(1000, 2048, seed, own_classes=True),
        0.005,
        120.0,
    ),
    "30/60 spread": (lambda seed: generate(30, 60, seed, spread=True), 0.01, 60.0),
}


def _churn(jobs: int, gpus: int, seed: int) -> Problem:
    first = generate(jobs, gpus, seed)
    return churned(first, plan(first, gap=0.005), 0.05, seed)


def run(
    cases: tuple[str, ...] = _QUICK, seeds: int = 3, *, methods: tuple[str, ...] = ("glpk",)
) -> list[Row]:
    """The table, as rows."""
    import pyomo.environ  # noqa: F401 - its import is not what is measured

    rows = []
    for name in cases:
        make, gap, limit_s = _CASES[name]
        bounds: dict[int, float] = {}
        for method in methods:
            rows.append(_row(name, method, make, gap, limit_s, seeds, bounds))
    return rows


def _row(
    name: str,
    method: str,
    make: Callable[[int], Problem],
    gap: float,
    limit_s: float,
    seeds: int,
    bounds: dict[int, float],
) -> Row:
    """One method on one row; gaps are to the best bound any method proved on that problem."""
    seconds, cpu, gaps, moved, statuses = [], [], [], [], []
    for seed in range(seeds):
        problem = make(seed)
        started, cpu_started = time.monotonic(), time.process_time()
        if method == "greedy":
            made = greedy(problem)
        else:
            solver: Any = method
            made = plan(problem, solver=solver, gap=gap, time_limit_s=limit_s)
        seconds.append(time.monotonic() - started)
        cpu.append(time.process_time() - cpu_started)
        bounds[seed] = max(bounds.get(seed, made.bound_w), made.bound_w)
        gaps.append((made.cost_w - bounds[seed]) / bounds[seed])
        running = sum(bool(job.at) for job in problem.jobs)
        moved.append((len(made.moves) + len(made.stops)) / running if running else 0.0)
        statuses.append(made.status)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Row(
        name,
        method,
        seeds,
        statistics.median(seconds),
        max(seconds),
        statistics.median(cpu),
        statistics.median(gaps),
        max(gaps),
        statistics.median(moved),
        memory,
        "/".join(statuses),
    )


def _table(rows: list[Row]) -> str:
    head = (
        "| jobs / GPUs | method | s median | s worst | CPU s | gap median | gap worst | moved "
        "| MB | status |"
    )
    lines = [head, "|" + "---|" * 10]
    for row in rows:
        lines.append(
            f"| {row.problem} | {row.method} | {row.seconds:.2f} | {row.worst_seconds:.2f} | "
            f"{row.cpu_s:.2f} | {row.gap:.2%} | {row.worst_gap:.2%} | {row.moved:.1%} | "
            f"{row.memory_mb:.0f} | {row.statuses} |"
        )
    return "\n".join(lines)


def register_bench(app: typer.Typer) -> None:
    """Add `gogh bench allocation` and `gogh bench problem`."""
    app.command("allocation")(allocation_command)
    app.command("problem")(problem_command)


def allocation_command(
    case: Annotated[
        list[str] | None, typer.Option(help=f"Rows to run; one of {', '.join(_CASES)}.")
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="glpk, highs, greedy.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Problems for each row.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """How good and how fast plans are, against greedy and HiGHS on the same problems."""
    from gogh_core.errors import InvalidInput

    chosen = tuple(case or _QUICK)
    for name in chosen:
        if name not in _CASES:
            raise InvalidInput(f"there is no row {name!r}", todo=f"use one of {', '.join(_CASES)}")
    rows = run(chosen, seeds, methods=tuple(method or ("glpk", "greedy")))
    typer.echo(json.dumps([asdict(row) for row in rows]) if as_json else _table(rows))


def problem_command(
    out: Annotated[Path, typer.Option(help="Where the problem goes.")],
    jobs: Annotated[int, typer.Option(help="Jobs.")] = 1000,
    gpus: Annotated[int, typer.Option(help="GPUs.")] = 2048,
    seed: Annotated[int, typer.Option(help="The same seed gives the same problem.")] = 0,
    throughput: Annotated[Path | None, typer.Option(help="A throughput table.")] = None,
    spread: Annotated[bool, typer.Option(help="All jobs spread.")] = False,
    own_classes: Annotated[bool, typer.Option(help="Every job a class of its own.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a realistic problem from a throughput table, or from a drawn one."""
    problem = generate(
        jobs, gpus, seed, throughput=throughput, spread=spread, own_classes=own_classes
    )
    write_problem(problem, out)
    facts = {"jobs": len(problem.jobs), "options": len(problem.table), "out": str(out)}
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        typer.echo(f"{facts['jobs']} jobs, {facts['options']} options in {out}")
