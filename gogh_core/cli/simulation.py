"""`gogh simulate` replays a trace under a policy; `gogh fault` breaks the embedded cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gogh_core.errors import InvalidInput

if TYPE_CHECKING:
    from gogh_core.simulation import ReplayReport

__all__ = ["register"]

_POLICIES = ("fcfs", "best_fit", "gogh")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("simulate")(simulate)
    app.command("fault")(fault)


def simulate(
    *,
    jobs: Annotated[
        Path, typer.Option(help="Trace: arrival_s, job_type, num_gpus, total_steps or duration_s.")
    ],
    throughput: Annotated[Path, typer.Option(help="Throughput table, the ground truth.")],
    cluster: Annotated[Path, typer.Option(help="Servers: id, gpu_type, gpus, base_w.")],
    policy: Annotated[str, typer.Option(help="fcfs, best_fit, gogh, or all.")] = "gogh",
    power: Annotated[Path | None, typer.Option(help="Power table beside it.")] = None,
    trace: Annotated[str | None, typer.Option(help="Which trace of a file of several.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first jobs.")] = None,
    window_s: Annotated[float, typer.Option(min=10, help="How often it is planned.")] = 300.0,
    promise: Annotated[
        float, typer.Option(min=0, max=1, help="Promised share of the usual throughput.")
    ] = 0.5,
    gap: Annotated[float, typer.Option(min=0, max=1, help="Asked gap of each plan.")] = 0.01,
    max_hours: Annotated[
        float, typer.Option(min=0.01, help="Stop after so many hours of the trace's time.")
    ] = 1440.0,
    seed: Annotated[int, typer.Option(help="Seed for classes that a trace does not name.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Replay a trace: energy, SLO, JCT, queueing delay, utilisation."""
    from gogh_core.simulation import TableTruth, read_cluster, read_jobs, replay

    chosen = _POLICIES if policy == "all" else (policy,)
    for name in chosen:
        if name not in _POLICIES:
            raise InvalidInput(
                f"policy {name!r} is not known", todo=f"known: {', '.join(_POLICIES)}, all"
            )
    rows = read_jobs(jobs, trace=trace, limit=limit)
    truth = TableTruth.read(throughput, power)
    servers = read_cluster(cluster)
    reports = []
    for name in chosen:
        reports.append(
            replay(
                rows,
                truth,
                servers,
                name,  # type: ignore[arg-type]
                window_s=window_s,
                promise=promise,
                gap=gap,
                seed=seed,
                max_hours=max_hours,
                report=_progress(name) if sys.stderr.isatty() else None,
            )
        )
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if as_json:
        raw = [report.to_dict() for report in reports]
        typer.echo(json.dumps(raw if policy == "all" else raw[0], indent=2))
        return
    typer.echo(_table(reports, max_hours))


def _progress(name: str) -> Callable[[float, int], None]:
    def show(hours: float, through: int) -> None:
        print(f"\r{name}: {hours:.0f} h, {through} jobs through", end="", file=sys.stderr)

    return show


def _table(reports: list[ReplayReport], max_hours: float) -> str:
    """One column for each policy, and what it does not say."""
    lines = [("", *(report.policy for report in reports))]
    rows: tuple[tuple[str, Callable[[ReplayReport], str]], ...] = (
        ("jobs", lambda r: f"{r.finished} of {r.jobs}"),
        ("left out", lambda r: f"{r.left_out}"),
        ("simulated", lambda r: f"{r.simulated_s / 3600:.4g} of {max_hours:g} h"),
        ("energy", lambda r: f"{r.energy_j / 3.6e6:.2f} kWh"),
        ("mean draw", lambda r: f"{r.mean_watts:.0f} W"),
        ("promise kept", lambda r: "-" if r.slo_attainment is None else f"{r.slo_attainment:.1%}"),
        ("JCT mean", lambda r: _hours(r.jct_mean_s)),
        ("JCT p95", lambda r: _hours(r.jct_p95_s)),
        ("queueing mean", lambda r: _hours(r.queueing_mean_s)),
        ("queueing p95", lambda r: _hours(r.queueing_p95_s)),
        ("utilisation", lambda r: f"{r.utilisation:.1%}"),
        ("makespan", lambda r: _hours(r.makespan_s)),
        ("moves", lambda r: f"{r.moves}"),
    )
    lines += [(label, *(show(report) for report in reports)) for label, show in rows]
    text = [f"{line[0]:14}" + "".join(f"{cell:>18}" for cell in line[1:]) for line in lines]
    text += [f"{r.policy} {r.note}; --max-hours sets the limit" for r in reports if r.note]
    drawn = max(report.drawn_classes for report in reports)
    text += [f"{drawn} jobs had no class in the trace: drawn at random"] if drawn else []
    return "\n".join(text)


def _hours(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds / 3600:.2f} h"


def fault(
    kind: Annotated[
        str,
        typer.Argument(
            help="gpu_dies, server_vanishes, job_crashes, telemetry_stops, server_returns."
        ),
    ],
    target: Annotated[str, typer.Argument(help="server/index, a server, a job, or all.")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    config: Annotated[Path | None, typer.Option(help="Another gogh.toml.")] = None,
) -> None:
    """Break something in the embedded cluster, to see what happens."""
    from gogh_core.settings import load
    from gogh_core.simulation import open_cluster

    settings = load(config)
    if settings.cluster.manager != "simulated":
        raise InvalidInput(
            f"the cluster manager is {settings.cluster.manager}",
            todo="faults are for the embedded cluster only",
        )
    cluster = open_cluster(settings)
    cluster.fault(kind, target)
    at = cluster.now.isoformat()
    if as_json:
        typer.echo(json.dumps({"fault": kind, "target": target, "at": at}))
    else:
        typer.echo(f"{kind} {target} at {at} of the cluster's clock")
