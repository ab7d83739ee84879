"""`gogh plans`, `approve`, `reject`, `pause`, `resume`, `emit`, `submit`, `advice`."""

from __future__ import annotations

import getpass
import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gogh_core.cli.common import cluster_time, open_store
from gogh_core.settings import load

if TYPE_CHECKING:
    from gogh_core.cluster import ExecutionReport

__all__ = ["register"]

Json = Annotated[bool, typer.Option("--json", help="As JSON.")]
Config = Annotated[Path | None, typer.Option(help="Another gogh.toml.")]
Who = Annotated[str | None, typer.Option(help="Who decides; the user of this shell otherwise.")]
Why = Annotated[str, typer.Option(help="Why; it is kept.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("plans")(plans)
    app.command("approve")(approve)
    app.command("reject")(reject)
    app.command("pause")(pause)
    app.command("resume")(resume)
    app.command("emit")(emit)
    app.command("advice")(advice)
    app.command("submit", context_settings={"ignore_unknown_options": True})(submit)


def _echo(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(type(value).__name__)


def _time(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment is not None else "?"


def _who(who: str | None) -> str:
    return who or getpass.getuser()


def plans(
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only those to approve.")] = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """What became of the newest plans, and which of them wait for approval."""
    from gogh_core.cluster import asked, executions

    settings, store = open_store(config)
    now = cluster_time(settings, store)
    open_ones = asked(store, now=now, timeout_s=settings.guards.approval_timeout_s)
    questions = {row["plan_id"]: row for row in open_ones}
    rows = executions(store, limit)
    for row in rows:
        row["asks"] = questions.get(row["plan_id"], {}).get("why")
    if waiting:
        rows = [row for row in rows if row["asks"] and row["state"] == "waiting"]
    if as_json:
        _echo(rows)
        return
    if not rows:
        typer.echo("no plans wait for approval" if waiting else "no plans yet")
    for row in rows:
        counts = ", ".join(
            f"{row[name]} {name}" for name in ("confirmed", "failed", "skipped") if row[name]
        )
        asks = f"; asks: {row['asks']}" if row["asks"] else ""
        state = str(row["state"]).replace("_", " ")
        typer.echo(f"{row['plan_id']}  {_time(row['changed_at'])}  {state}  {counts}{asks}")


def _decide(
    plan: str, *, approved: bool, who: str | None, why: str, as_json: bool, config: Path | None
) -> None:
    from gogh_core.cluster import asked, decide, open_manager, stored_plan
    from gogh_core.planning import settle_plan

    settings, store = open_store(config)
    manager = open_manager(settings, store)
    known = [row["plan_id"] for row in asked(store) if row["plan_id"].startswith(plan)]
    name = known[0] if len(known) == 1 else stored_plan(store, plan)[0].id
    word = decide(
        store,
        name,
        approve=approved,
        who=_who(who),
        why=why,
        now=manager.clock(),
        timeout_s=settings.guards.approval_timeout_s,
    )
    if not as_json:
        typer.echo(f"plan {word.plan_id} {word.told()}")
    report = settle_plan(settings, manager=manager, store=store, plan_id=word.plan_id)
    assert report.execution is not None
    if as_json:
        _echo({**asdict(word), "execution": _execution(report.execution)})
    elif approved:
        _show_execution(report.execution)
    if approved:
        _exit(report.execution)


def approve(
    plan: Annotated[str, typer.Argument(help="The plan's id; its beginning is enough.")],
    why: Why = "",
    who: Who = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Approve a plan that waits for a person, and carry it out at once."""
    _decide(plan, approved=True, who=who, why=why, as_json=as_json, config=config)


def reject(
    plan: Annotated[str, typer.Argument(help="The plan's id; its beginning is enough.")],
    why: Why = "",
    who: Who = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Throw away a plan that waits for a person."""
    _decide(plan, approved=False, who=who, why=why, as_json=as_json, config=config)


def pause(why: Why = "", who: Who = None, as_json: Json = False, config: Config = None) -> None:
    """Stop everything: no action is sent until `gogh resume`."""
    from gogh_core.cluster import pause as turn
    from gogh_core.store import Store

    settings = load(config)
    store = Store(settings)
    word = turn(settings, store, who=_who(who), why=why, now=cluster_time(settings, store))
    if as_json:
        _echo({"paused": True, **asdict(word)})
    else:
        typer.echo(f"paused by {word.who}; `gogh resume` lets actions go on")


def resume(why: Why = "", who: Who = None, as_json: Json = False, config: Config = None) -> None:
    """Let actions go on."""
    from gogh_core.cluster import resume as turn
    from gogh_core.store import Store

    settings = load(config)
    store = Store(settings)
    was = turn(settings, store, who=_who(who), why=why, now=cluster_time(settings, store))
    if as_json:
        _echo({"paused": False, "was_paused": was})
    else:
        typer.echo("actions go on" if was else "nothing was paused")


def emit(
    plan: Annotated[
        str, typer.Argument(help="The plan's id; otherwise the newest that is to be sent.")
    ] = "",
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Carry a stored plan out, or go on where it stopped; sends nothing twice."""
    from gogh_core.cluster import nothing_to_send, open_manager, plan_to_send, stored_plan
    from gogh_core.planning import settle_plan

    settings, store = open_store(config)
    manager = open_manager(settings, store)
    name = stored_plan(store, plan)[0].id if plan else plan_to_send(store)
    if name is None:
        why = nothing_to_send(settings, store, manager.clock())
        _echo({"plan": None, "detail": why}) if as_json else typer.echo(why)
        return
    report = settle_plan(settings, manager=manager, store=store, plan_id=name)
    assert report.execution is not None
    if as_json:
        _echo(_execution(report.execution))
    else:
        _show_execution(report.execution)
    _exit(report.execution)


def _execution(report: ExecutionReport) -> dict[str, Any]:
    return {
        "plan": report.plan_id,
        "cycle": report.cycle_id,
        "state": report.state,
        "detail": report.detail,
        "seconds": report.seconds,
        "not_capable": list(report.not_capable),
        "actions": [
            {
                "action": record.action.id,
                "state": record.state,
                "reason": record.reason,
                "sent_at": record.sent_at,
                "settled_at": record.settled_at,
            }
            for record in report.records
        ],
    }


def _show_execution(report: ExecutionReport) -> None:
    typer.echo(f"plan {report.plan_id} {report.summary()}")
    for said in report.not_capable:
        typer.echo(f"  not asked for: {said}")
    for record in report.records:
        if record.state != "confirmed":
            typer.echo(f"  {record.action.id} {record.state}: {record.reason}")


def _exit(report: ExecutionReport) -> None:
    """What was not carried out as it was meant ends the command with 1."""
    if report.failed or report.state in ("abandoned", "interrupted", "rejected", "superseded"):
        raise typer.Exit(1)


def advice(
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """What plans that were only advised would have saved against what the cluster drew."""
    from gogh_core.cluster import advice as advised

    _, store = open_store(config)
    rows = advised(store, limit)
    if as_json:
        _echo(rows)
        return
    if not rows:
        typer.echo("no plan was only advised yet")
    for row in rows:
        planned, measured, saved = row["planned_w"], row["measured_w"], row["saved_j"]
        if saved is None:
            typer.echo(f"{row['plan_id']}  {_time(row['window_start'])}  not measured yet")
        else:
            typer.echo(
                f"{row['plan_id']}  {_time(row['window_start'])}  planned {planned:.0f} W, "
                f"measured {measured:.0f} W: would have saved {saved / 3.6e6:.3f} kWh"
            )


def submit(
    command: Annotated[list[str], typer.Argument(help="The script and its arguments.")],
    *,
    model: Annotated[str, typer.Option(help="What is trained or served.")],
    batch_size: Annotated[int | None, typer.Option(min=1)] = None,
    min_throughput: Annotated[float | None, typer.Option(min=0, help="What is promised.")] = None,
    unit: Annotated[str | None, typer.Option(help="Of the throughput; steps/s otherwise.")] = None,
    gpus: Annotated[str | None, typer.Option(help="GPU counts it can use, such as 1,2,4.")] = None,
    shareable: Annotated[bool, typer.Option("--shareable", help="May share its GPU.")] = False,
    fixed: Annotated[bool, typer.Option("--fixed", help="May not be moved.")] = False,
    kind: Annotated[str | None, typer.Option(help="training or inference.")] = None,
    priority: Annotated[float | None, typer.Option(min=0)] = None,
    total_steps: Annotated[float | None, typer.Option(min=0)] = None,
    precision: Annotated[str | None, typer.Option(help="Such as fp32, amp, bf16.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option for sbatch, as it is.")
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Submit a job to Slurm with the comment by which it opts in; the next plan starts it."""
    from gogh_core.cluster import submit as send

    words = {
        "model": model,
        "batch_size": batch_size,
        "min_throughput": min_throughput,
        "unit": unit,
        "gpus": gpus,
        "shareable": shareable,
        "fixed": fixed,
        "kind": kind,
        "priority": priority,
        "total_steps": total_steps,
        "precision": precision,
    }
    job = send(load(config), words, command, option or ())
    if as_json:
        _echo({"job": job})
    else:
        typer.echo(f"job {job} waits for the next plan")
