"""`gogh simulate` replays a trace under a policy; `gogh fault` breaks the embedded cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gogh_core.errors import InvalidInput

__all__ = ["register"]


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
    policy: Annotated[
        str, typer.Option(help="A policy, several with commas, or all; gogh is one of them.")
    ] = "gogh",
    estimates: Annotated[
        str,
        typer.Option(
            help="What gogh knows of speeds and watts: `learned` from telemetry of this run, or "
            "the `true` means. The other policies are always told the true means."
        ),
    ] = "learned",
    power: Annotated[Path | None, typer.Option(help="Power table beside it.")] = None,
    trace: Annotated[str | None, typer.Option(help="Which trace of a file of several.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first jobs.")] = None,
    windows: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many windows (to the end otherwise).")
    ] = None,
    window_s: Annotated[float, typer.Option(min=10, help="How often it is planned.")] = 300.0,
    promise: Annotated[
        float, typer.Option(min=0, max=1, help="Promised share of the usual throughput.")
    ] = 0.5,
    gap: Annotated[
        float, typer.Option(min=0, max=1, help="Asked gap of each plan of gogh.")
    ] = 0.01,
    max_hours: Annotated[
        float, typer.Option(min=0.01, help="Stop after so many hours of the trace's time.")
    ] = 1440.0,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of drawn classes and of telemetry's noise.")
    ] = 0,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Keep the run in this file, and go on with the one that is there; with several "
            "policies, one file for each with its name behind."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Replay a trace: energy for the work, promises kept, completion times, what was lost."""
    from gogh_core.cli.simulation_runs import Replays, chosen_policies, replay_table
    from gogh_core.simulation import TableTruth, read_cluster, read_jobs

    names = chosen_policies(policy)
    if estimates not in ("learned", "true"):
        raise InvalidInput(f"estimates {estimates!r} are not known", todo="known: learned, true")
    horizon_s = max_hours * 3600 if windows is None else min(max_hours * 3600, windows * window_s)
    replays = Replays(
        read_jobs(jobs, trace=trace, limit=limit),
        TableTruth.read(throughput, power),
        read_cluster(cluster),
        window_s=window_s,
        promise=promise,
        gap=gap,
        seed=seed,
        horizon_s=horizon_s,
        learned=estimates == "learned",
    )
    several = len(names) > 1
    found = []
    for name in names:
        file = resume.with_name(f"{resume.name}.{name}") if resume and several else resume
        found.append(replays.run(name, file))
    if as_json:
        typer.echo(json.dumps(found if several else found[0], indent=2))
        return
    typer.echo(replay_table(found, horizon_s))


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
