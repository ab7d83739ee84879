"""`gogh status`: the one page an operator looks at first, as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gogh_core.cli.prefect_server import Api, Daemon, api_url
from gogh_core.cli.stack import next_cycle
from gogh_core.errors import GoghError
from gogh_core.settings import Settings, load

if TYPE_CHECKING:
    from gogh_core.watch import Overview

__all__ = ["register", "stack_facts"]

_ANSWER_S = 0.4
"""How long the page waits for Prefect's server."""
_SHOWN = 10
Facts = dict[str, Any]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("status")(status)


def status(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    config: Annotated[Path | None, typer.Option(help="Another gogh.toml.")] = None,
) -> None:
    """The one page: server, cycles, orders, servers out, who waits and why, open questions."""
    from gogh_core.cluster import open_manager
    from gogh_core.store import Store, now_utc
    from gogh_core.watch import overview

    settings = load(config)
    store = Store(settings)
    now = now_utc()
    stack = stack_facts(settings, now)
    store.must_exist()  # before a cluster is made for it
    found = overview(settings, store, open_manager(settings, store))
    facts = {"stack": stack, **_facts(settings, found)}
    if as_json:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False, default=_plain))
        return
    for line in _lines(facts, now):
        typer.echo(line)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(type(value).__name__)


def stack_facts(settings: Settings, now: datetime) -> Facts:
    """Which processes of `gogh up` run, whether the server answers, when the next cycle comes."""
    home = settings.home.absolute()
    records = sorted(path.stem for path in (home / "run").glob("*.json"))
    processes = {name: Daemon(name, home).process() is not None for name in records}
    answers, upcoming, paused = False, None, False
    if processes.get("server") or settings.prefect.url is not None:
        try:
            api = Api(settings, patience_s=0.0, timeout_s=_ANSWER_S)
            upcoming = next_cycle(api, now)
            answers, paused = True, upcoming is None
        except GoghError:
            pass
    return {
        "url": api_url(settings).removesuffix("/api"),
        "processes": processes,
        "answers": answers,
        "next_cycle": upcoming,
        "schedule_paused": paused,
    }


def _facts(settings: Settings, found: Overview) -> Facts:
    """The page as JSON."""
    seen = found.status
    execution = seen.execution
    return {
        "at": found.at,
        "fresh": found.fresh,
        "manager": seen.manager,
        "mode": seen.mode,
        "servers": len(seen.state.servers),
        "jobs": len(seen.state.jobs),
        "paused": asdict(seen.pause) if seen.pause else None,
        "questions": [_question(settings, row) for row in seen.questions],
        "orders": list(found.orders),
        "servers_out": list(found.servers_out),
        "running_cycle": _cycle(found.running),
        "last_cycle": _cycle(found.last),
        "last_window": found.last_window,
        "waiting": list(found.waiting),
        "plan": execution.plan_id if execution else None,
        "cycle": execution.cycle_id if execution else None,
        "state": execution.state if execution else None,
        "detail": execution.detail if execution else None,
        "since": execution.begun_at if execution else None,
        "differences": [asdict(difference) for difference in seen.differences],
        "refused": dict(seen.refused),
    }


def _cycle(row: Mapping[str, Any] | None) -> Facts | None:
    kept = ("window_start", "revision", "reason", "state", "detail", "begun_at", "ended_at",
            "running", "waiting", "power_w", "moves", "stops")  # fmt: skip
    return None if row is None else {name: row[name] for name in kept}


def _question(settings: Settings, row: Mapping[str, Any]) -> Facts:
    """A plan that waits for a person: why, since when, and how to answer."""
    run = row.get("run_id")
    return {
        "plan": row["plan_id"],
        "asks": row["why"],
        "since": row["asked_at"],
        "approve": f"gogh approve {row['plan_id']}",
        "reject": f"gogh reject {row['plan_id']}",
        "form": settings.prefect.run_page(run) if run else None,
    }


def _lines(facts: Facts, now: datetime) -> Iterator[str]:
    """The page as text; what needs a person comes first."""
    if facts["paused"]:
        pause = facts["paused"]
        yield f"PAUSED    by {pause['who']} at {pause['at']}: {pause['why']}"
    for question in facts["questions"]:
        since = _time(question["since"])
        yield f"WAITS     for approval since {since}: {question['asks']} (plan {question['plan']})"
        yield f"          {question['approve']}, or {question['reject']}"
        if question["form"]:
            yield f"          {question['form']}"
    yield from _stack_lines(facts["stack"], now)
    jobs = f"{facts['servers']} servers, {facts['jobs']} jobs"
    yield f"cluster   {facts['manager']}, {jobs}, mode {facts['mode']}, {_time(facts['at'])} UTC"
    for row in facts["servers_out"]:
        yield f"  server {row['server']} is {row['state']} since {_time(row['since'])}"
    yield from _block("orders", [_order(row) for row in facts["orders"]], "none stand")
    yield from _cycle_lines(facts)
    yield from _block(
        "waiting",
        [f"job {w['job']} for {_span(w['waited_s'])}: {w['why']}" for w in facts["waiting"]],
        "no job",
    )
    yield from _plan_lines(facts)
    if not facts["fresh"]:
        yield "A cycle is writing: plans and cycles are as they were last published."


def _order(row: Mapping[str, Any]) -> str:
    """Such as `drain v100-01 since 2026-01-05 12:51:00 by ann: fan`."""
    figure = {"cap": f" {row['power_w']} W", "quota": f" {row['gpus']} GPUs"}.get(row["kind"], "")
    what = f"{row['kind']} {row['subject']}".strip() + figure
    since = "since" if row["state"] == "in force" else "from"
    until = f" until {_time(row['ends_at'])}" if row["ends_at"] is not None else ""
    why = f": {row['reason']}" if row["reason"] else ""
    return f"{what} {since} {_time(row['begins_at'])}{until} by {row['who']}{why}"


def _stack_lines(stack: Facts, now: datetime) -> Iterator[str]:
    ended = [name for name, runs in stack["processes"].items() if not runs]
    runs = [name for name, runs in stack["processes"].items() if runs]
    if stack["answers"]:
        others = ", ".join(name for name in runs if name != "server")
        yield f"server    {stack['url']}" + (f"; {others} run" if others else "")
    elif "server" in runs:
        yield f"server    {stack['url']} runs, but gave no answer within {_ANSWER_S:g} s"
    else:
        yield "server    not running; `gogh up` starts it"
    for name in ended:
        yield f"  {name} HAS ENDED; `gogh up` starts it again"
    if stack["next_cycle"] is not None:
        left = _span((stack["next_cycle"] - now).total_seconds())
        yield f"next      cycle at {stack['next_cycle']:%H:%M:%S} UTC, in {left}"
    elif stack["schedule_paused"]:
        yield "next      no cycle: the schedule is PAUSED; the UI resumes it"


def _cycle_lines(facts: Facts) -> Iterator[str]:
    running, last, window = facts["running_cycle"], facts["last_cycle"], facts["last_window"]
    if running is not None:
        yield f"running   {_named(running)}: {running['state']} since {_time(running['begun_at'])}"
    if last is not None:
        told = f": {last['detail']}" if last["detail"] else ""
        yield f"last      {_named(last)} {last['state']}{told}"
    if window is not None:
        kept = "" if window["kept"] is None else f", {window['kept']:.0%} of promises kept"
        covered = window.get("covered")
        share = "" if covered is None else f", {covered:.0%} of it measured"
        at = _time(window["window_start"])
        yield f"window    {at}: {window['measured_w']:,.0f} W measured{kept}{share}"


def _plan_lines(facts: Facts) -> Iterator[str]:
    if facts["plan"] is None:
        yield "plan      none was handed over yet"
    else:
        detail = f" ({facts['detail']})" if facts["detail"] else ""
        yield f"plan      {facts['plan']}, cycle {facts['cycle']}: {facts['state']}{detail}"
        differs = [
            f"{d['subject']}: planned {d['wanted']}, is {d['has']}, since {_time(d['since'])}"
            + (f": {d['why']}" if d["why"] else "")
            for d in facts["differences"]
        ]
        yield from _block("differs", differs, "nowhere")
    for job, reason in facts["refused"].items():
        yield f"  job {job} is not planned: {reason}"


def _block(name: str, lines: list[str], none: str) -> Iterator[str]:
    """How many there are, and the first of them."""
    yield f"{name:<9} {len(lines) or none}"
    for line in lines[:_SHOWN]:
        yield f"  {line}"
    if len(lines) > _SHOWN:
        yield f"  … and {len(lines) - _SHOWN} more (--json has all)"


def _named(cycle: Mapping[str, Any]) -> str:
    revision = f" r{cycle['revision']}" if cycle["revision"] else ""
    return f"cycle {cycle['window_start']:%H:%M}{revision}"


def _time(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment is not None else "?"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
