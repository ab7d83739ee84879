"""Looks for what cannot wait for the next window, and sends it as an event."""

from __future__ import annotations

from datetime import timedelta

from prefect import flow
from prefect.events import emit_event
from prefect.states import Completed

from flows.desk import Desk, Outcome, around, rename, told
from gogh_core.store import fetch
from gogh_core.watch import Event, Seen, look

__all__ = ["send", "watch"]


@flow(name="watch", flow_run_name="watch")
@told
def watch() -> Outcome:
    """A server or GPU lost, an urgent job, promises missed for long, another power cap."""
    desk = Desk()
    kept = desk.settings.home / "run" / "seen.json"
    state = around("state", desk.manager.state)
    now, events = look(Seen.load(kept), state, missed=_missed(desk), settings=desk.settings)
    for event in events:
        send(event)
    now.save(kept)
    told_ = ", ".join(event.reason for event in events) or "all quiet"
    rename(f"watch · {told_}"[:200])
    return Completed(message=told_)


def send(event: Event) -> None:
    """Put one event into Prefect's feed, where the automation of `replan` waits for it."""
    emit_event(
        event=event.name,
        resource={"prefect.resource.id": f"gogh.{event.target}"},
        payload={"reason": event.reason, "target": event.target},
    )


def _missed(desk: Desk) -> list[str]:
    since = desk.clock() - timedelta(seconds=desk.settings.prefect.slo_missed_s)
    with desk.store.read() as connection:
        rows = fetch(connection, "watch_missed", since=since).to_pylist()
    return [row["job_id"] for row in rows]
