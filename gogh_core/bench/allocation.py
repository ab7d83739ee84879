"""`gogh bench allocation` and `gogh bench problem`: how good and how fast plans are.

One run, one table: every row of problems over several seeds (median and worst), and on the same
problems the rivals: the same search with HiGHS, first fit, best fit by energy, HiGHS on the whole
model, and the naive program until it dies. Gaps are to the best bound that the run proved.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gogh_core.bench.problems import generate, write_problem
from gogh_core.bench.trials import OURS, ROWS, SLOW, Row, Trial, run_trial
from gogh_core.errors import InvalidInput

__all__ = ["growth", "register_bench", "run", "table"]

_HEAD = (
    "| jobs / GPUs | method | s median | s worst | asked s | CPU s median | CPU s worst "
    "| gap median | gap worst | asked | moved worst | MB worst | plans |"
)


def run(rows: Iterable[str], seeds: int | None, methods: Sequence[str] | None) -> list[Trial]:
    """Every trial of these rows, one after the other; an interrupt ends with what there is."""
    trials: list[Trial] = []
    try:
        for row, method, seed in _plan_of(rows, seeds, methods):
            trial = run_trial(row, method, seed)
            trials.append(trial)
            typer.echo(
                f"{row.name}, {method}, seed {seed}: {trial.status}, {trial.seconds:.2f} s, "
                f"{trial.cpu_s:.2f} CPU s, {trial.memory_mb:.0f} MB",
                err=True,
            )
    except KeyboardInterrupt:
        typer.echo("interrupted: the table has what was done", err=True)
    return trials


def _plan_of(
    rows: Iterable[str], seeds: int | None, methods: Sequence[str] | None
) -> Iterator[tuple[Row, str, int]]:
    """Row, method and seed of each trial."""
    for name in rows:
        row = ROWS[name]
        for method in row.methods:
            if not methods or method in methods:
                for seed in range(1 if method in SLOW else seeds or row.seeds):
                    yield row, method, seed


def table(trials: Sequence[Trial]) -> str:
    """The trials as one table, a line for each row and method."""
    bounds: dict[tuple[str, int], float] = {}
    for trial in trials:
        key = (trial.row, trial.seed)
        bounds[key] = max(bounds.get(key, -math.inf), trial.bound_w)
    lines = [_HEAD, "|" + "---|" * 13]
    seen = dict.fromkeys((trial.row, trial.method) for trial in trials)
    for name, method in seen:
        mine = [trial for trial in trials if (trial.row, trial.method) == (name, method)]
        gaps = [
            (trial.cost_w - bound) / bound
            for trial in mine
            if trial.cost_w is not None and (bound := bounds[name, trial.seed]) > 0
        ]
        lines.append(_line(name, method, mine, gaps))
    return "\n".join(lines)


def _line(name: str, method: str, mine: Sequence[Trial], gaps: Sequence[float]) -> str:
    ours, row = method in OURS, ROWS[name]
    seconds, cpu = [trial.seconds for trial in mine], [trial.cpu_s for trial in mine]
    gap = [f"{statistics.median(gaps):.2%}", f"{max(gaps):.2%}"] if gaps else ["-", "-"]
    cells = [
        name,
        method,
        f"{statistics.median(seconds):.2f}",
        f"{max(seconds):.2f}",
        f"{row.goal_s:g}" if ours else "",
        f"{statistics.median(cpu):.2f}",
        f"{max(cpu):.2f}",
        *gap,
        f"{row.gap:.1%}" if ours else "",
        f"{max(trial.moved for trial in mine):.1%}",
        f"{max(trial.memory_mb for trial in mine):.0f}",
        ", ".join(trial.status for trial in mine),
    ]
    return "| " + " | ".join(cells) + " |"


def growth(trials: Sequence[Trial]) -> str:
    """How CPU seconds and memory of our own planner grow with the jobs, and by which power."""
    points = []
    for name, row in ROWS.items():
        mine = [trial for trial in trials if (trial.row, trial.method) == (name, "glpk")]
        if row.jobs and mine:
            cpu = statistics.median(trial.cpu_s for trial in mine)
            memory = statistics.median(trial.memory_mb for trial in mine)
            points.append((row.jobs, cpu, memory))
    lines = ["| jobs | CPU s | ms for each job | MB | power of growth |", "|---|---|---|---|---|"]
    for at, (jobs, cpu, memory) in enumerate(points):
        power = ""
        if at and points[at - 1][1] > 0 and cpu > 0:
            steps = math.log(jobs / points[at - 1][0])
            power = f"{math.log(cpu / points[at - 1][1]) / steps:.2f}"
        lines.append(f"| {jobs} | {cpu:.2f} | {1000 * cpu / jobs:.2f} | {memory:.0f} | {power} |")
    return "\n".join(lines) if points else ""


def register_bench(app: typer.Typer) -> None:
    """Add `gogh bench allocation` and `gogh bench problem`."""
    app.command("allocation")(allocation_command)
    app.command("problem")(problem_command)


def allocation_command(
    rows: Annotated[
        list[str] | None,
        typer.Option("--rows", help=f"Rows to run (all): {', '.join(ROWS)}."),
    ] = None,
    methods: Annotated[
        list[str] | None, typer.Option("--methods", help="Methods to try (those of the row).")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Problems for each row (3, for the largest 1).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """How good and how fast plans are, and what rivals do on the same problems."""
    chosen = rows or list(ROWS)
    known = {method for row in ROWS.values() for method in row.methods}
    for name, among in (*((r, ROWS) for r in chosen), *((m, known) for m in methods or ())):
        if name not in among:
            raise InvalidInput(f"there is no {name!r}", todo=f"use one of {', '.join(among)}")
    trials = run(chosen, seeds, methods)
    if as_json:
        typer.echo(json.dumps([asdict(trial) for trial in trials]))
    else:
        typer.echo(table(trials) + "\n\n" + growth(trials))


def problem_command(
    out: Annotated[Path, typer.Option(help="Where the problem goes.")],
    jobs: Annotated[int, typer.Option(help="Jobs.")] = 1000,
    gpus: Annotated[int, typer.Option(help="GPUs.")] = 2048,
    seed: Annotated[int, typer.Option(help="The same seed gives the same problem.")] = 0,
    throughput: Annotated[Path | None, typer.Option(help="A throughput table.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="A trace of jobs: their GPUs, models and owners.")
    ] = None,
    spread: Annotated[bool, typer.Option(help="All jobs spread.")] = False,
    own_classes: Annotated[bool, typer.Option(help="Every job a class of its own.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a realistic problem from a throughput table and a trace, or from drawn ones."""
    problem = generate(
        jobs,
        gpus,
        seed,
        throughput=throughput,
        trace=trace,
        spread=spread,
        own_classes=own_classes,
    )
    write_problem(problem, out)
    facts = {"jobs": len(problem.jobs), "options": len(problem.table), "out": str(out)}
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        typer.echo(f"{facts['jobs']} jobs, {facts['options']} options in {out}")
