"""Everything an operator looks for first, from one look at store and cluster: `overview`.

What is asked of the store comes from one connection (`Store.glance`), so the page agrees with
itself and does not wait for a cycle that writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gogh_core.cluster import ClusterManager, Status, status_of
from gogh_core.domain import JobState, PowerState
from gogh_core.settings import Settings
from gogh_core.store import Store
from gogh_core.watch.readings import last_window, rows_of

__all__ = ["Overview", "overview"]

_RECENT = 20
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Overview:
    """The cluster beside its plan, and what GOGH does, did and waits for."""

    at: datetime
    """The cluster's time."""
    fresh: bool
    """Whether the store's part is the newest data; the last published otherwise."""
    status: Status
    running: Row | None
    """The cycle that is under way."""
    last: Row | None
    """The newest cycle that ended."""
    orders: tuple[Row, ...]
    """Standing orders, `in force` or `planned`."""
    servers_out: tuple[Row, ...]
    """Servers that are down or drained."""
    waiting: tuple[Row, ...]
    """Jobs that wait, the longest first, and why."""
    last_window: Row | None
    """The newest window that was measured."""


def overview(settings: Settings, store: Store, manager: ClusterManager) -> Overview:
    """One look at all of it."""
    with store.glance() as seen:
        status = status_of(settings, seen, manager)
        cycles = rows_of(seen, "planning_list", rows=_RECENT, missed=False)
        orders = _orders(seen, status.state.at)
        return Overview(
            at=manager.clock(),
            fresh=seen.fresh,
            status=status,
            running=next((c for c in cycles if c["state"] in ("planning", "planned")), None),
            last=next((c for c in cycles if c["ended_at"] is not None), None),
            orders=orders,
            servers_out=_servers_out(status, orders),
            waiting=_waiting(status),
            last_window=last_window(seen),
        )


def _orders(store: Store, now: datetime) -> tuple[Row, ...]:
    """Orders that are neither lifted nor over."""
    return tuple(
        {**row, "state": "in force" if row["begins_at"] <= now else "planned"}
        for row in rows_of(store, "planning_orders")
        if row["lifted_at"] is None and (row["ends_at"] is None or now < row["ends_at"])
    )


def _servers_out(status: Status, orders: Sequence[Row]) -> tuple[Row, ...]:
    """Servers no job can be placed on by a fault or a drain; those switched off are no fault."""
    drains = [order for order in orders if order["kind"] == "drain"]
    ordered = {o["subject"]: o["begins_at"] for o in drains if o["state"] == "in force"}
    found = []
    for server in status.state.servers:
        down = server.power is PowerState.DOWN
        if down or server.drain or server.server.id in ordered:
            state = "down" if down else "drained"
            since = server.since if down else ordered.get(server.server.id, server.since)
            found.append({"server": server.server.id, "state": state, "since": since})
    return tuple(found)


def _waiting(status: Status) -> tuple[Row, ...]:
    plan, at = status.plan, status.state.at
    why = {wait.job: wait.reason for wait in plan.waiting} if plan is not None else {}
    placed = {placement.job for placement in plan.placements} if plan is not None else set()
    found = []
    for job in status.state.jobs:
        if job.state is JobState.WAITING:
            unplanned = "planned, not started" if job.job.id in placed else "not planned yet"
            found.append(
                {
                    "job": job.job.id,
                    "waited_s": (at - (job.since or job.job.submitted_at)).total_seconds(),
                    "why": why.get(job.job.id, unplanned),
                }
            )
    return tuple(sorted(found, key=lambda row: (-row["waited_s"], row["job"])))
