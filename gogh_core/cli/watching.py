"""`gogh watch`: what cannot wait for the next window, looked for beside server and worker.

`gogh up` starts it as a process of its own, not as a flow on a schedule: a look that finds nothing
leaves no run, no row and no event in Prefect. A look does two things:
- it compares the cluster with what the last look saw and sends what began since as events, for
  which the automation of `replan` waits. What was seen is kept after it was sent, so a look that is
  killed in between is done again: the damper makes one replan of two equal events.
- it marks runs whose process is gone as crashed. Prefect's own way, an automation with a bucket
  for each run, writes to its database for every heartbeat, and fails when others write too.
"""

from __future__ import annotations

import itertools
import json
import time
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gogh_core.cli.prefect_server import HEARTBEAT_S, Api, locked
from gogh_core.errors import GoghError
from gogh_core.settings import Settings, load

if TYPE_CHECKING:
    from gogh_core.watch import Event

__all__ = ["crash_silent", "look_once", "register"]

_EVERY_S = 5.0
_RUNS_EVERY = 6
"""Runs are looked after in each sixth look at the cluster."""
_SILENT_S = {"RUNNING": 3.0 * HEARTBEAT_S, "PENDING": 10.0 * HEARTBEAT_S}
"""A run in this state that gave no sign of life for so long has no process any more."""
_GONE = "To do: nothing, the next cycle goes on. Why: its process ended without a word"


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("watch")(watch)


def watch(
    once: Annotated[bool, typer.Option("--once", help="One look, then end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, a line for each look.")] = False,
    config: Annotated[Path | None, typer.Option(help="Another gogh.toml.")] = None,
) -> None:
    """Send what cannot wait as an event: a lost server or GPU, an urgent job, a missed promise."""
    for number in itertools.count():
        settings = load(config)  # each time: a changed power cap is an event
        try:
            told = look_once(
                settings, Api(settings, patience_s=5.0), runs=number % _RUNS_EVERY == 0
            )
        except GoghError as error:
            if once:
                raise
            told = [f"no look: {error}"]
        if as_json:
            typer.echo(json.dumps(told))
        elif told or once:
            typer.echo("\n".join(told) or "all quiet")
        if once:
            return
        time.sleep(_EVERY_S)


def look_once(settings: Settings, api: Api, *, runs: bool = True) -> list[str]:
    """Look at the cluster and, if asked, after runs; what was sent and marked, a line each."""
    from gogh_core.cluster import open_manager
    from gogh_core.planning import follow
    from gogh_core.store import Store, now_utc
    from gogh_core.watch import Seen, look, missed

    home = settings.home.absolute()
    store = Store(settings)
    manager = open_manager(settings, store)
    since = manager.clock() - timedelta(seconds=settings.prefect.slo_missed_s)
    follow(settings, manager, wall=now_utc())
    with locked(home / "run" / "watch.lock"):
        before = Seen.load(home / "seen.json")
        seen, events = look(before, manager.state(), missed=missed(store, since), settings=settings)
        if events:
            api.call("POST", "/events", [_as_prefect(event, now_utc()) for event in events])
        seen.save(home / "seen.json")
    gone = crash_silent(api, now_utc()) if runs else []
    return [event.reason for event in events] + [f"run {name} has no process" for name in gone]


def _as_prefect(event: Event, at: datetime) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid4()),
        "event": event.name,
        "occurred": at.isoformat(),
        "resource": {"prefect.resource.id": f"gogh.{event.target}"},
        "payload": {"reason": event.reason, "target": event.target},
    }


def crash_silent(api: Api, now: datetime) -> list[str]:
    """Mark runs whose process was killed as crashed; their names."""
    body = {"flow_runs": {"state": {"type": {"any_": list(_SILENT_S)}}}}
    gone = []
    for run in api.call("POST", "/flow_runs/filter", body):
        limit_s = _SILENT_S[run["state_type"]]
        since = now - timedelta(seconds=limit_s)
        if datetime.fromisoformat(run["state"]["timestamp"]) > since or _heard(api, run, since):
            continue
        state = {"type": "CRASHED", "name": "Crashed", "message": _GONE}
        # Not by force: a run that ended meanwhile stays as it ended.
        api.call("POST", f"/flow_runs/{run['id']}/set_state", {"state": state})
        gone.append(str(run["name"]))
    return gone


def _heard(api: Api, run: dict[str, Any], since: datetime) -> bool:
    """Whether the run gave a sign of life since then."""
    wanted = {
        "event": {"name": ["prefect.flow-run.heartbeat"]},
        "resource": {"id": [f"prefect.flow-run.{run['id']}"]},
        "occurred": {"since": since.isoformat()},
    }
    return bool(api.call("POST", "/events/filter", {"filter": wanted, "limit": 1})["events"])
