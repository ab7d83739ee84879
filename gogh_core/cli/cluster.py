"""`gogh status`, `plans`, `approve`, `reject`, `pause`, `resume`, `emit`, `submit`, `advice`."""

from __future__ import annotations

import getpass
import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gogh_core.errors import InvalidInput, StoreError
from gogh_core.settings import Settings, load

if TYPE_CHECKING:
    from gogh_core.store import Store

__all__ = ["register"]

Json = Annotated[bool, typer.Option("--json", help="As JSON.")]
Config = Annotated[Path | None, typer.Option(help="Another gogh.toml.")]
Who = Annotated[str | None, typer.Option(help="Who decides; the user of this shell otherwise.")]
Why = Annotated[str, typer.Option(help="Why; it is kept.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("status")(status)
    app.command("plans")(plans)
    app.command("approve")(approve)
    app.command("reject")(reject)
    app.command("pause")(pause)
    app.command("resume")(resume)
    app.command("emit")(emit)
    app.command("advice")(advice)
    app.command("submit", context_settings={"ignore_unknown_options": True})(submit)


def _open(config: Path | None) -> tuple[Settings, Store]:
    from gogh_core.store import Store

    settings = load(config)
    store = Store(settings)
    if not store.path.exists():
        raise StoreError(
            "there is no database yet", where=str(store.path), todo="run a cycle or `gogh demo`"
        )
    store.migrate()
    return settings, store


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


def status(as_json: Json = False, config: Config = None) -> None:
    """What the plan wanted, what the cluster has, where they differ and since when."""
    from gogh_core.cluster import open_manager, status_of

    settings, store = _open(config)
    found = status_of(settings, store, open_manager(settings, store))
    execution = found.execution
    if as_json:
        _echo(
            {
                "manager": found.manager,
                "mode": found.mode,
                "paused": asdict(found.pause) if found.pause else None,
                "plan": execution.plan_id if execution else None,
                "cycle": execution.cycle_id if execution else None,
                "state": execution.state if execution else None,
                "detail": execution.detail if execution else None,
                "since": execution.begun_at if execution else None,
                "differences": [asdict(difference) for difference in found.differences],
                "refused": dict(found.refused),
                "jobs": len(found.state.jobs),
                "servers": len(found.state.servers),
            }
        )
        return
    typer.echo(f"cluster   {found.manager}, {len(found.state.servers)} servers, mode {found.mode}")
    if found.pause is not None:
        typer.echo(f"PAUSED    by {found.pause.who} at {found.pause.at}: {found.pause.why}")
    if execution is None:
        typer.echo("plan      none was handed over yet")
        return
    detail = f" ({execution.detail})" if execution.detail else ""
    typer.echo(f"plan      {execution.plan_id}, cycle {execution.cycle_id}")
    typer.echo(f"state     {execution.state} since {_time(execution.changed_at)}{detail}")
    typer.echo(f"differs   {len(found.differences) or 'nowhere'}")
    for one in found.differences:
        why = f": {one.why}" if one.why else ""
        since = _time(one.since)
        typer.echo(f"  {one.subject}: planned {one.wanted}, is {one.has}, since {since}{why}")
    for job, reason in found.refused.items():
        typer.echo(f"  job {job} is not planned: {reason}")


def plans(
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only those to approve.")] = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """What became of the newest plans, and which of them wait for approval."""
    from gogh_core.cluster import asked, executions

    _, store = _open(config)
    questions = {row["plan_id"]: row for row in asked(store)}
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
    from gogh_core.cluster import asked, decide
    from gogh_core.store import now_utc

    _, store = _open(config)
    known = [row["plan_id"] for row in asked(store) if row["plan_id"].startswith(plan)]
    if len(known) > 1 and plan not in known:
        raise InvalidInput(f"{plan!r} is the beginning of several plans", todo="`gogh plans`")
    name = plan if plan in known or not known else known[0]
    word = decide(store, name, approve=approved, who=_who(who), why=why, now=now_utc())
    if as_json:
        _echo(asdict(word))
        return
    after = "; the next cycle or `gogh emit` carries it out" if approved else ""
    typer.echo(f"plan {word.plan_id} {word.decision} by {word.who}{after}")


def approve(
    plan: Annotated[str, typer.Argument(help="The plan's id; its beginning is enough.")],
    why: Why = "",
    who: Who = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Let a plan that waits for a person be carried out."""
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
    from gogh_core.store import Store, now_utc

    settings = load(config)
    word = turn(settings, Store(settings), who=_who(who), why=why, now=now_utc())
    if as_json:
        _echo({"paused": True, **asdict(word)})
    else:
        typer.echo(f"paused by {word.who}; `gogh resume` lets actions go on")


def resume(why: Why = "", who: Who = None, as_json: Json = False, config: Config = None) -> None:
    """Let actions go on."""
    from gogh_core.cluster import resume as turn
    from gogh_core.store import Store, now_utc

    settings = load(config)
    was = turn(settings, Store(settings), who=_who(who), why=why, now=now_utc())
    if as_json:
        _echo({"paused": False, "was_paused": was})
    else:
        typer.echo("actions go on" if was else "nothing was paused")


def emit(
    plan: Annotated[str, typer.Argument(help="The plan's id; the newest otherwise.")] = "",
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Carry a stored plan out, or go on where it stopped; sends nothing twice."""
    from gogh_core.cluster import basis_of, carry_out, open_manager, stored_plan

    settings, store = _open(config)
    found = stored_plan(store, plan)
    if found is None:
        raise InvalidInput("there is no plan yet", todo="`gogh replan` makes one")
    manager = open_manager(settings, store)
    state = manager.state()
    report = carry_out(
        found[0],
        basis_of(store, found[0].id) or state,
        manager=manager,
        store=store,
        settings=settings,
        cycle_id=found[1],
        now=state.at,
    )
    if as_json:
        _echo(
            {
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
        )
    else:
        typer.echo(f"plan {report.plan_id} {report.summary()}")
        for said in report.not_capable:
            typer.echo(f"  not asked for: {said}")
        for record in report.records:
            if record.state != "confirmed":
                typer.echo(f"  {record.action.id} {record.state}: {record.reason}")
    if report.failed or report.state in ("abandoned", "interrupted", "rejected"):
        raise typer.Exit(1)


def advice(
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """What plans that were only advised would have saved against what the cluster drew."""
    from gogh_core.cluster import advice as advised

    settings, store = _open(config)
    rows = advised(settings, store, limit)
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
