"""`gogh replan` and `gogh cycles`: a new plan now, and what became of the windows so far."""

from __future__ import annotations

import getpass
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gogh_core.errors import InvalidInput

if TYPE_CHECKING:
    from gogh_core.planning import CycleReport

__all__ = ["register"]

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Config = Annotated[Path | None, typer.Option(help="Another gogh.toml.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("replan")(replan)
    app.command("cycles")(cycles)


def replan(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change; nothing is sent.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Stands in the plan's record.")] = "by hand",
    objective: Annotated[
        str | None,
        typer.Option(help="energy, watts, throughput, cost or carbon; else objective.name."),
    ] = None,
    pin: Annotated[
        list[str] | None, typer.Option(help="A running job that stays, until `gogh unpin`.")
    ] = None,
    drain: Annotated[
        list[str] | None, typer.Option(help="A server that must be empty, until `gogh undrain`.")
    ] = None,
    max_moves: Annotated[int | None, typer.Option(help="Moves at most.")] = None,
    power_cap: Annotated[
        float | None, typer.Option(help="Watts at most, until `gogh uncap`.")
    ] = None,
    solver: Annotated[str | None, typer.Option(help="glpk or highs.")] = None,
    gap: Annotated[float | None, typer.Option(help="How near to the bound, 0.01 is 1 %.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for the solver.")] = None,
    approve: Annotated[
        bool, typer.Option("--approve", help="Approve the plan where a guard asks for that.")
    ] = False,
    wait_for_approval: Annotated[
        bool, typer.Option("--wait-for-approval", help="Store the plan and wait for a person.")
    ] = False,
    via_server: Annotated[
        bool, typer.Option("--via-server", help="As a run of the server that `gogh up` started.")
    ] = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Make a new plan now, for what is left of the window."""
    from gogh_core.planning import Request

    if approve and wait_for_approval:
        raise InvalidInput("--approve and --wait-for-approval exclude each other")
    if reason == "schedule":
        raise InvalidInput("'schedule' is the cadence's own reason", where="--reason")
    request = Request(
        reason=reason,
        objective=objective,  # type: ignore[arg-type]
        solver=solver,  # type: ignore[arg-type]
        gap=gap,
        time_limit_s=time_limit,
        max_moves=max_moves,
        power_cap_w=power_cap,
        pin=tuple(pin or ()),
        drain=tuple(drain or ()),
        dry_run=dry_run,
        wait_for_approval=wait_for_approval,
        who=getpass.getuser(),
    )
    if via_server:
        _via_server(request, config, as_json=as_json)
        return
    report = _run(request, config, approve=approve, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(report.to_dict()))
    else:
        _show(report)
    if report.outcome in ("rejected", "interrupted"):
        raise typer.Exit(1)


def _via_server(request: Any, config: Path | None, *, as_json: bool) -> None:
    from gogh_core.cli.stack import replan_via_server
    from gogh_core.settings import load

    settings = load(config)
    done = replan_via_server(settings, request, wait_s=2 * settings.cycle.budget_s)
    if as_json:
        typer.echo(json.dumps(done))
    else:
        typer.echo(f"{done['name']}\n  {done['message']}\n  {done['ui']}")
    if done["state"] not in ("completed", "paused"):
        raise typer.Exit(1)


def _run(request: Any, config: Path | None, *, approve: bool, quiet: bool) -> CycleReport:
    from gogh_core.cluster import decide, open_manager
    from gogh_core.planning import after_answer, run_cycle, settle_plan
    from gogh_core.settings import load
    from gogh_core.store import Store

    settings = load(config)
    store = Store(settings)
    store.migrate()
    manager = open_manager(settings, store)

    def tell(step: str, seconds: float) -> None:
        if not quiet and seconds == 0 and sys.stderr.isatty():
            print(f"\r\x1b[K{step} …", end="", file=sys.stderr, flush=True)

    report = run_cycle(settings, manager=manager, store=store, request=request, report=tell)
    if not quiet and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if approve and report.outcome == "waiting" and report.plan is not None:
        who, now = getpass.getuser(), manager.clock()
        decide(store, report.plan.id, approve=True, who=who, why=request.reason, now=now)
        done = settle_plan(settings, manager=manager, store=store, plan_id=report.plan.id)
        report = after_answer(report, done)
    return report


def _show(report: CycleReport) -> None:
    typer.echo(report.name)
    if report.detail:
        typer.echo(f"  {report.detail}")
    for order in report.given:
        typer.echo(f"  stands until `{order.lifting}`: {order}")
    for line in report.degraded:
        typer.echo(f"  without: {line}")
    if report.diff is not None:
        for line in report.diff.lines():
            typer.echo(f"  {line}")
    for note in report.notes:
        typer.echo(f"  note: {note}")
    for wait in report.plan.waiting if report.plan is not None else ():
        typer.echo(f"  {wait.job} waits: {wait.reason}")
    if report.outcome == "waiting" and report.plan is not None:
        typer.echo(f"  to let it go on: gogh approve {report.plan.id}")


def cycles(
    missed: Annotated[
        bool, typer.Option("--missed", help="Only windows that nobody planned.")
    ] = False,
    rows: Annotated[int, typer.Option(help="How many, the newest first.", min=1)] = 20,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """List the newest cycles: what was planned, what was missed and why."""
    from gogh_core.planning import list_cycles
    from gogh_core.settings import load
    from gogh_core.store import Store

    found = list_cycles(Store(load(config)), rows=rows, missed=missed)
    if as_json:
        typer.echo(json.dumps([_plain(row) for row in found]))
        return
    if not found:
        typer.echo("no window was missed" if missed else "no cycle has run yet")
        return
    for row in found:
        typer.echo(_line(row))
        for text in (row["detail"], *json.loads(row["degraded"] or "[]")):
            if text:
                typer.echo(f"    {text}")


def _line(row: dict[str, Any]) -> str:
    revision = f" r{row['revision']}" if row["revision"] else ""
    line = f"{row['window_start']:%Y-%m-%d %H:%M}{revision}  {row['state']}"
    if row["plan_id"] is not None:
        watts = "" if row["power_w"] is None else f", {row['power_w']:,.0f} W"
        line += f": {row['running']} jobs, {row['waiting']} waiting{watts}, {row['moves']} moves"
    return line if row["reason"] in (None, "schedule") else f"{line} ({row['reason']})"


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    out = {k: v.isoformat() if isinstance(v, datetime) else v for k, v in row.items()}
    for name in ("degraded", "seconds"):
        out[name] = json.loads(out[name]) if out[name] else None
    return out
