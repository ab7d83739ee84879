"""`gogh bench estimators`: accuracy, learning, intervals, feasibility, power, speed in one run."""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path
from typing import Annotated, Any

import typer

# Before numpy is loaded: one core is what is measured.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__all__ = ["register_bench"]


def register_bench(app: typer.Typer) -> None:
    """Add the command."""
    app.command("estimators")(estimators)


def estimators(
    data: Annotated[Path | None, typer.Option(help="Folder of measurements (GOGH_DATA).")] = None,
    source: Annotated[str, typer.Option(help="Source of throughput.parquet.")] = "gavel_simulation",
    quick: Annotated[bool, typer.Option("--quick", help="Bar, process and served.")] = False,
    plots: Annotated[Path | None, typer.Option(help="Folder for PNG plots.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of the served networks, for their spread.")] = 3,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Some of: speed accuracy learning others gangs feasibility power."),
    ] = None,
    pretrain: Annotated[
        Path | None, typer.Option(help="Train the shipped networks anew into this folder; no more.")
    ] = None,
    worlds: Annotated[int, typer.Option(help="Synthetic worlds for --pretrain.")] = 300,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """P1 and P2 against simple methods on jobs and families left out; power; speed."""
    if pretrain is not None:
        _pretrain(pretrain, worlds, as_json)
        return
    from gogh_core.errors import InvalidInput
    from gogh_core.estimation import study as report

    folder = report.data_folder(data)
    result: dict[str, Any] = {}
    if folder is None:
        typer.echo("no measurements (set GOGH_DATA): speed only", err=True)
        result["speed"] = report.speed()
    else:
        strange = sorted(set(only or ()) - set(report.Study.SECTIONS))
        if strange:
            raise InvalidInput(
                f"there is no section {strange[0]!r}", where="--only",
                todo=f"one of {', '.join(report.Study.SECTIONS)}",
            )  # fmt: skip
        began = time.monotonic()
        study = report.Study(folder, source, quick=quick, seeds=seeds)
        left_out = ("others", "gangs") if quick else ()
        result = study.run(only or [s for s in report.Study.SECTIONS if s not in left_out])
        result["seconds"] = round(time.monotonic() - began, 1)
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if plots is not None and folder is not None:
        report.draw(result, plots)
    if as_json:
        typer.echo(json.dumps(result, default=float))
    else:
        typer.echo(report.page(result))


def _pretrain(folder: Path, worlds: int, as_json: bool) -> None:
    from rich.progress import Progress

    from gogh_core.estimation import pretrain

    with Progress(disable=as_json) as progress:
        task = progress.add_task("worlds", total=1.0)
        scores = pretrain(
            folder, worlds=worlds, report=lambda _, done: progress.update(task, completed=done)
        )
    found = {
        kind: {s: {"before": x.before, "after": x.after} for s, x in stages.items()}
        for kind, stages in scores.items()
    }
    if as_json:
        typer.echo(json.dumps(found))
        return
    for kind, stages in scores.items():
        for stage, score in stages.items():
            typer.echo(f"{kind:13} {stage}: error {100 * score.gain:.1f} % below the process's")
