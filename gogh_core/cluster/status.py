"""What the plan wanted, what the cluster has, where they differ and since when.

`status_of` takes the plan that runs (the newest that was handed over: view `running_plan`) and
compares it with the cluster now. Since when: the moment the job got to where it is, where the
manager knows it; else the moment the journal settled the action; else when the plan was handed
over. `advice` says what plans that were only advised would have saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gogh_core.cluster.actions import job_slots
from gogh_core.cluster.approvals import Pause, asked, paused
from gogh_core.cluster.fit import same_place, shown
from gogh_core.cluster.guards import effective_mode
from gogh_core.cluster.journal import ActionRecord, Execution, Journal
from gogh_core.cluster.manager import ClusterManager
from gogh_core.domain import ClusterState, JobState, JobStatus, Plan, PowerState
from gogh_core.errors import InvalidInput
from gogh_core.settings import Settings
from gogh_core.store import Store, fetch, fetch_rows

__all__ = [
    "Difference",
    "Status",
    "advice",
    "differences",
    "nothing_to_send",
    "plan_to_send",
    "status_of",
    "stored_plan",
]

_OVER = (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as planned."""

    subject: str
    wanted: str
    has: str
    since: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class Status:
    """The plan that runs beside the cluster."""

    manager: str
    mode: str
    pause: Pause | None
    plan: Plan | None
    execution: Execution | None
    records: tuple[ActionRecord, ...]
    state: ClusterState
    differences: tuple[Difference, ...]
    refused: Mapping[str, str]
    """Jobs that meant to opt in and cannot be planned, with the reason."""
    questions: tuple[Mapping[str, Any], ...] = ()
    """Plans that wait for a person's word, as `asked` lists them."""


def stored_plan(store: Store, plan_id: str) -> tuple[Plan, str]:
    """A plan and its cycle; the name may be cut short."""
    with store.read() as connection:
        ids = fetch(connection, "cluster_plan_ids", prefix=plan_id)["plan_id"].to_pylist()
        if plan_id not in ids:
            if len(ids) != 1:
                many = "is the beginning of several plans" if ids else "is no plan"
                raise InvalidInput(f"{plan_id!r} {many}", todo="`gogh plans` lists them")
            plan_id = ids[0]
        row = fetch_rows(connection, "cluster_plan", plan_id=plan_id)[0]
    plan = Plan.from_dict(json.loads(row["plan_json"]), where=f"plan {plan_id}")
    return plan, row["cycle_id"]


def plan_to_send(store: Store) -> str | None:
    """The newest plan that is still to be sent and may be; None when there is none."""
    with store.read() as connection:
        rows = fetch(connection, "cluster_to_send")["plan_id"].to_pylist()
    return rows[0] if rows else None


def nothing_to_send(settings: Settings, store: Store, now: datetime) -> str:
    """Why `plan_to_send` finds none: a person has not answered yet, or all is done."""
    waits = asked(store, now=now, timeout_s=settings.guards.approval_timeout_s)
    if not waits:
        return "no plan waits to be sent"
    name, why = waits[0]["plan_id"], waits[0]["why"]
    return f"plan {name} waits for approval ({why}): `gogh approve {name}` sends it"


def status_of(settings: Settings, store: Store, manager: ClusterManager) -> Status:
    """The plan that runs, beside the cluster as it is now; and what waits for a person."""
    state = manager.state()
    with store.read() as connection:
        running = fetch(connection, "cluster_running_plan")["plan_id"].to_pylist()
    plan: Plan | None = None
    execution: Execution | None = None
    records: tuple[ActionRecord, ...] = ()
    if running:
        plan, _ = stored_plan(store, running[0])
        journal = Journal(store, running[0], "", manager.name, lambda: state.at)
        execution, records = journal.before, journal.records()
    differs: tuple[Difference, ...] = ()
    if plan is not None and execution is not None:
        by_index = manager.capabilities.chooses_gpu_index
        differs = differences(plan, state, records, execution.begun_at, by_index=by_index)
    return Status(
        manager.name,
        effective_mode(settings, manager),
        paused(settings),
        plan,
        execution,
        records,
        state,
        differs,
        manager.refused(),
        tuple(asked(store, now=state.at, timeout_s=settings.guards.approval_timeout_s)),
    )


def differences(
    plan: Plan,
    state: ClusterState,
    records: Sequence[ActionRecord],
    begun_at: datetime,
    *,
    by_index: bool,
) -> tuple[Difference, ...]:
    """Where the cluster is not as planned; jobs that ended or came later are no fault."""
    jobs = {status.job.id: status for status in state.jobs}
    servers = {status.server.id: status for status in state.servers}
    about = {
        record.action.job or record.action.server: record
        for record in records
        if record.state != "confirmed"
    }
    found: list[Difference] = []
    for job, placement in job_slots(plan.placements).items():
        status = jobs.get(job)
        if status is None or status.state in _OVER:
            continue
        if not same_place(status.slots, placement.slots, by_index=by_index):
            wanted = shown(placement.slots)
            found.append(_difference(job, wanted, status, about.get(job), begun_at))
    for job in [*(stop.job for stop in plan.stops), *(wait.job for wait in plan.waiting)]:
        status = jobs.get(job)
        if status is not None and status.slots:
            found.append(_difference(job, "waiting", status, about.get(job), begun_at))
    for switch in plan.servers:
        server = servers.get(switch.id)
        wanted_on = switch.action == "on"
        is_on = server is not None and server.power in (PowerState.ON, PowerState.SWITCHING_ON)
        if server is None or is_on != wanted_on:
            record = about.get(switch.id)
            has = "not there" if server is None else server.power.value.replace("_", " ")
            since = server.since if server is not None and server.since else begun_at
            why = record.reason if record else ""
            found.append(Difference(f"server {switch.id}", switch.action, has, since, why))
    return tuple(found)


def _difference(
    job: str, wanted: str, status: JobStatus, record: ActionRecord | None, begun_at: datetime
) -> Difference:
    settled = record.settled_at if record is not None else None
    # Before the plan was handed over nothing could differ from it.
    since = max(status.since, begun_at) if status.since and status.slots else settled or begun_at
    has = shown(status.slots) if status.slots else str(status.state)
    return Difference(f"job {job}", wanted, has, since, record.reason if record else "")


def advice(store: Store, limit: int = 20) -> list[dict[str, Any]]:
    """Plans that were only advised: planned watts, measured watts, and what was not saved."""
    with store.read() as connection:
        rows: list[dict[str, Any]] = fetch(connection, "cluster_advice", limit=limit).to_pylist()
    return rows
