"""`gogh bench cycle`: one whole cycle on a large embedded cluster, and where its time goes.

A first cycle fills the cluster, one window passes, and the second cycle, with all the telemetry of
that window, is measured: seconds and CPU of each step. What is neither planning nor learning
(imports, database, telemetry, carrying out) is to stay under 20 s of CPU.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gogh_core.settings import Settings

__all__ = ["register_bench"]

_LEARN_AND_PLAN = ("retrain", "estimate", "allocate")
_PROMISED_CPU_S = 20.0
_GPUS_PER_SERVER = 6  # of the embedded cluster, on average


def register_bench(app: typer.Typer) -> None:
    """Add `gogh bench cycle`."""
    app.command("cycle")(bench)


def bench(
    jobs: Annotated[int, typer.Option(help="Jobs on the cluster.", min=1)] = 500,
    gpus: Annotated[int, typer.Option(help="GPUs of the cluster.", min=6)] = 1024,
    seed: Annotated[int, typer.Option(help="Another seed: other jobs.", min=0)] = 0,
    folder: Annotated[Path | None, typer.Option(help="Where the files go meanwhile.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """One whole cycle with many jobs and GPUs: total, and the share of each step."""
    home = Path(tempfile.mkdtemp(prefix="gogh-bench-", dir=folder))
    try:
        found = measure(_settings(home, jobs, gpus, seed), jobs)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _show(found)
    if not found["ok"]:
        raise typer.Exit(1)


def _settings(home: Path, jobs: int, gpus: int, seed: int) -> Settings:
    from gogh_core.settings import load
    from gogh_core.simulation import SAMPLE_PERIOD_S

    settings = load(home=home)
    simulation = settings.simulation.model_copy(
        update={
            "servers": math.ceil(gpus / _GPUS_PER_SERVER),
            "jobs_per_hour": 2.0 * jobs,
            "seed": seed,
        }
    )
    telemetry = settings.telemetry.model_copy(update={"sample_period_s": float(SAMPLE_PERIOD_S)})
    return settings.model_copy(update={"simulation": simulation, "telemetry": telemetry})


def measure(settings: Settings, jobs: int) -> dict[str, Any]:
    """Two cycles with a window between them; every figure is of the second."""
    from gogh_core.planning import run_cycle
    from gogh_core.simulation import open_cluster
    from gogh_core.store import Store

    cpu: dict[str, float] = {}

    def around(name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        try:
            return work()
        finally:
            cpu[name] = cpu.get(name, 0.0) + time.process_time() - began

    store = Store(settings)
    store.migrate()
    cluster = open_cluster(settings, store)
    window_s = settings.cycle.window_s
    arrivals = settings.simulation.jobs_per_hour * window_s / 3600
    while len(cluster.state().jobs) < jobs - arrivals:
        cluster.advance(60)
    run_cycle(settings, manager=cluster, store=store)
    cluster.advance(window_s)
    state = cluster.state()
    began, began_cpu = time.monotonic(), time.process_time()
    report = run_cycle(settings, manager=cluster, store=store, around=around)
    total_s, total_cpu_s = time.monotonic() - began, time.process_time() - began_cpu
    planning_cpu_s = sum(cpu.get(name, 0.0) for name in _LEARN_AND_PLAN)
    other_cpu_s = total_cpu_s - planning_cpu_s
    plan = report.plan
    return {
        "jobs": len([status for status in state.jobs if status.state.value != "finished"]),
        "gpus": sum(status.server.gpus for status in state.servers),
        "rows": report.ingested.report.rows_in if report.ingested and report.ingested.report else 0,
        "outcome": report.outcome,
        "running": report.running,
        "waiting": len(plan.waiting) if plan is not None else None,
        "gap": plan.gap if plan is not None else None,
        "seconds": total_s,
        "cpu_s": total_cpu_s,
        "steps": {
            name: {"seconds": seconds, "cpu_s": cpu.get(name, 0.0), "share": seconds / total_s}
            for name, seconds in report.seconds.items()
        },
        "other_cpu_s": other_cpu_s,
        "promised_cpu_s": _PROMISED_CPU_S,
        "degraded": list(report.degraded),
        "ok": report.outcome == "emitted" and other_cpu_s < _PROMISED_CPU_S,
    }


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(
        f"{found['jobs']} jobs on {found['gpus']} GPUs, {found['rows']:,} rows of telemetry: "
        f"{found['running']} run, {found['waiting']} wait, gap {found['gap']:.2%}"
    )
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("step")
    for name in ("seconds", "share", "CPU s"):
        table.add_column(name, justify="right")
    for name, step in found["steps"].items():
        table.add_row(
            name, f"{step['seconds']:.2f}", f"{step['share']:.0%}", f"{step['cpu_s']:.2f}"
        )
    table.add_row("whole cycle", f"{found['seconds']:.2f}", "100%", f"{found['cpu_s']:.2f}")
    console.print(table)
    word = "kept" if found["other_cpu_s"] < found["promised_cpu_s"] else "MISSED"
    console.print(
        f"neither planning nor learning: {found['other_cpu_s']:.1f} s of CPU "
        f"(promised: under {found['promised_cpu_s']:.0f} s, {word})"
    )
    for line in found["degraded"]:
        console.print(f"without: {line}")
