"""`gogh demo`: the whole corridor on the embedded cluster, bounded, with a summary.

A fresh cluster in a home of its own; each cycle runs the real code (ingest, contracts, networks,
solver, journal), then the virtual clock goes on by one window. At the end the same arrivals are run
under other schedulers, and a report is left in the home.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gogh_core.errors import InvalidInput

if TYPE_CHECKING:
    from gogh_core.cli.demo_view import View
    from gogh_core.planning import CycleReport, Request
    from gogh_core.settings import Settings
    from gogh_core.simulation import SimulatedCluster
    from gogh_core.store import Store

__all__ = ["register"]

_GAP = 0.02
_WORK = 10.0
_PATIENCE_S = 1800.0
"""Far beyond what any step takes: the clock never decides, so that a seed has one outcome."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    cycles: Annotated[int, typer.Option(help="How many windows to plan.", min=1, max=1000)] = 6,
    seed: Annotated[int, typer.Option(help="Another seed: other jobs.", min=0)] = 0,
    home: Annotated[
        Path | None, typer.Option(help="Where everything is kept (a fresh folder otherwise).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan an embedded cluster of mixed GPUs for some windows, and tell what was saved."""
    from gogh_core.cli.demo_view import Plain, Silent, open_view

    settings = _settings(seed, home)
    view: View = Silent() if as_json else (open_view() if sys.stdout.isatty() else Plain())
    result = run_demo(settings, cycles, view)
    if as_json:
        typer.echo(json.dumps(result))


def _settings(seed: int, home: Path | None) -> Settings:
    from gogh_core import settings as all_settings
    from gogh_core.simulation import SAMPLE_PERIOD_S

    if home is None:
        home = Path(tempfile.mkdtemp(prefix="gogh-demo-"))
    elif home.exists() and any(home.iterdir()):
        raise InvalidInput(
            "is not empty", where=str(home), todo="the demo begins afresh: name another folder"
        )
    settings = all_settings.load(home=home)
    simulation = settings.simulation.model_copy(update={"seed": seed})
    cluster = settings.cluster.model_copy(update={"manager": "simulated", "mode": "act"})
    telemetry = settings.telemetry.model_copy(update={"sample_period_s": float(SAMPLE_PERIOD_S)})
    estimation = settings.estimation.model_copy(update={"retrain_budget_s": _PATIENCE_S})
    # Small problems are the hardest to prove: the last per cent would take most of the time.
    effort = {"gap": _GAP, "work_limit": _WORK, "time_limit_s": _PATIENCE_S}
    allocation = settings.allocation.model_copy(update=effort)
    budgets = {"budget_s": _PATIENCE_S, "step_budget_s": _PATIENCE_S}
    return settings.model_copy(
        update={
            "allocation": allocation,
            "simulation": simulation,
            "cluster": cluster,
            "telemetry": telemetry,
            "estimation": estimation,
            "cycle": settings.cycle.model_copy(update=budgets),
        }
    )


def run_demo(settings: Settings, cycles: int, view: View) -> dict[str, Any]:
    """Plan so many windows of a fresh embedded cluster; every figure, as `--json` prints it."""
    from gogh_core.cli import demo_report
    from gogh_core.simulation import compare, open_cluster
    from gogh_core.store import Store

    began = time.monotonic()
    store = Store(settings)
    store.migrate()
    cluster = open_cluster(settings, store)
    window_s = settings.cycle.window_s
    start = cluster.now
    rows: list[dict[str, Any]] = []
    with view:
        view.begin(cluster.state(), settings, cycles)
        for number in range(cycles):
            view.cycle(number, cycles, cluster.now)
            report = plan_unattended(settings, cluster, store, view)
            view.step("the cluster runs", 0.0)
            since = cluster.now
            run_window(settings, cluster, store, view)
            measured = cluster.metrics(since, cluster.now)
            rows.append(demo_report.cycle_row(report, measured))
            view.row(rows[-1])
        view.step("the same jobs under other schedulers", 0.0)
        ours = cluster.metrics(start, cluster.now)
        others = compare(settings.simulation, horizon_s=cycles * window_s, window_s=window_s)
        result = demo_report.result(settings, rows, ours, others)
        result["seconds"] = round(time.monotonic() - began, 1)
        result["report"] = str(demo_report.write(settings, result))
        view.end(result)
    return result


def run_window(settings: Settings, cluster: SimulatedCluster, store: Store, view: View) -> None:
    """Let the cluster run to the end of the window; what happens meanwhile is answered at once."""
    from gogh_core.planning import Request

    end = cluster.now + timedelta(seconds=settings.cycle.window_s)
    replanned = cluster.now
    while (now := cluster.advance_to_event(end)) < end:
        request = Request(reason="jobs came or left", increment=True)
        report = plan_unattended(settings, cluster, store, view, request)
        calm = (now - replanned).total_seconds() >= settings.prefect.damper_s
        if calm and report.plan is not None and report.plan.waiting:
            replanned = now
            plan_unattended(settings, cluster, store, view, Request(reason="jobs still wait"))


def plan_unattended(
    settings: Settings,
    cluster: SimulatedCluster,
    store: Store,
    view: View,
    request: Request | None = None,
) -> CycleReport:
    """Plan one window; nobody is there to be asked, so the demo approves in its own name."""
    from gogh_core.cluster import approval_of, decide
    from gogh_core.planning import run_cycle

    report = run_cycle(settings, manager=cluster, store=store, report=view.step, request=request)
    word = approval_of(store, report.plan.id) if report.plan is not None else None
    if report.plan is None or word is None or word.decision != "asked":
        return report
    decide(
        store,
        report.plan.id,
        approve=True,
        who="gogh demo",
        why="nobody is asked in the demo",
        now=cluster.now,
    )
    done = run_cycle(settings, manager=cluster, store=store, report=view.step, cycle=report.cycle)
    told = f"the demo approved the plan itself: {word.why}"
    return replace(
        report,
        outcome=done.outcome,
        execution=done.execution,
        detail=done.detail,
        degraded=(*report.degraded, *done.degraded, told),
    )
