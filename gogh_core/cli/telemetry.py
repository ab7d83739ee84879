"""`gogh ingest` and `gogh agent`: telemetry taken in, and sampled on a GPU server."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from gogh_core import settings as all_settings
from gogh_core.cli.common import AsJson, Now, echo_json, in_utc
from gogh_core.errors import BatchRefused

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("ingest")(ingest)
    app.command("agent")(agent)


def ingest(
    now: Now = None,
    records: Annotated[bool, typer.Option(help="Ask the cluster manager as well.")] = True,
    as_json: AsJson = False,
) -> None:
    """Take in everything new: records of the cluster manager, the spool, Prometheus."""
    from gogh_core.cluster import open_manager
    from gogh_core.store import Store
    from gogh_core.telemetry import ingest as take_in

    settings = all_settings.load()
    store = Store(settings)
    store.migrate()
    manager = open_manager(settings, store)
    state = manager.state() if records else None
    moment = in_utc(now) if now else manager.clock()
    tell = (lambda _: None) if as_json else (lambda text: typer.echo(text, err=True))
    report = take_in(store, settings, now=moment, state=state, tell=tell)
    if as_json:
        echo_json(report.to_dict())
    else:
        for source in report.sources:
            typer.echo(
                f"{source.name:10} {source.rows_in:9} rows: {source.rows_clean} clean, "
                f"{source.rows_quarantined} quarantined, {source.rows_duplicate} duplicate, "
                f"{source.rows_late} late"
            )
            for warning in source.warnings:
                typer.echo(f"{'':10} warning: {warning}")
        for server, skew_s in sorted((report.skews or {}).items()):
            typer.echo(f"clock of {server} is {skew_s:+.1f} s off; corrected")
        if report.files_removed:
            typer.echo(f"{report.files_removed} files removed that were taken in long ago")
        typer.echo(f"{report.observations} observations computed")
    if not report.ok:
        raise BatchRefused("; ".join(report.faults), todo="`gogh quarantine list` shows the rows")


def agent(
    server: Annotated[str | None, typer.Option(help="Its name; the host's if none.")] = None,
    spool: Annotated[Path | None, typer.Option(help="Where; the settings' spool if none.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
) -> None:
    """On a GPU server: sample every GPU once a second into the spool."""
    from gogh_core.telemetry import Agent, Devices

    settings = all_settings.load()
    os.umask(0o022)  # GOGH, which takes the samples in, may be another user than the agent
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: stopped.append(got))

    def tell(text: str) -> None:
        print(f"gogh agent: {text}", file=sys.stderr, flush=True)

    devices = Devices(tell)
    running = Agent(
        spool or settings.spool,
        devices,
        server=server,
        limit_mb=settings.telemetry.spool_limit_mb,
        period_s=settings.telemetry.sample_period_s,
        tell=tell,
    )
    written = running.run(lambda: bool(stopped), samples=samples)
    devices.close()
    tell(f"{written} rows written")
