"""Events that the cluster's state tells of and no source has told: starts, stops and ends.

The log of events says where each job is. `record_changes` compares it with the state the cluster
manager gives and adds what is missing, at the time the change happened if the manager knows it,
otherwise at the time it was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import duckdb
import pyarrow as pa

from gogh_core.domain import ClusterState, JobState, JobStatus, Mode, Slot
from gogh_core.settings import Settings
from gogh_core.store import fetch
from gogh_core.telemetry.stays import Event, build_stays, read_events

__all__ = ["record_changes"]

_EVENTS = {
    "job_id": pa.string(),
    "ts": pa.timestamp("us", "UTC"),
    "event": pa.string(),
    "server_id": pa.string(),
    "gpus": pa.list_(pa.int32()),
    "partner_job_id": pa.string(),
    "detail": pa.string(),
}
_ENDED = {
    JobState.FINISHED: "finished",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
}
_AT_ONCE_S = 1e-3
"""An event this little after the state was read belongs to it: sources round to milliseconds."""


def record_changes(
    connection: duckdb.DuckDBPyConnection, settings: Settings, state: ClusterState
) -> None:
    """Add the events that the log lacks, in the caller's transaction."""
    until = state.at.timestamp() + _AT_ONCE_S
    log: dict[str, list[Event]] = {}
    for event in read_events(connection, since=until, until=until):
        log.setdefault(event.job, []).append(event)
    users: dict[Slot, list[str]] = {}
    for status in state.jobs:
        for slot in status.slots:
            users.setdefault(slot, []).append(status.job.id)
    rows = [
        {
            "job_id": status.job.id,
            "ts": ts,
            "event": event,
            "server_id": slot.server if slot else None,
            "gpus": list(slot.gpus) if slot else None,
            "partner_job_id": _partner(status, users.get(slot, [])) if slot else None,
            "detail": "seen by the cluster manager",
        }
        for status in state.jobs
        for ts, event, slot in _missing(status, log.get(status.job.id, []), state.at)
    ]
    table = {name: pa.array([row[name] for row in rows], kind) for name, kind in _EVENTS.items()}
    connection.register("changes", pa.table(table))
    fetch(connection, "telemetry_store_changes", window_s=settings.cycle.window_s)


def _missing(
    status: JobStatus, log: Sequence[Event], seen_at: datetime
) -> list[tuple[datetime, str, Slot | None]]:
    """What happened to a job and is not in its log (empty: a new job, or one known to be over)."""
    spread = status.job.mode is Mode.SPREAD
    at = _when(status, log, seen_at)
    found: list[tuple[datetime, str, Slot | None]] = []
    if not log:
        found.append((status.job.submitted_at, "submitted", None))
    if status.state in _ENDED:
        return [(at, _ENDED[status.state], None)] if log else found
    stays = build_stays(log, {status.job.id: spread})
    old = {Slot(stay.server, stay.gpus) for stay in stays if stay.open}
    runs = status.state is JobState.RUNNING
    new = [slot for slot in status.slots if slot not in status.starting] if runs else []
    found += [(at, "stopped", slot) for slot in sorted(old - set(new), key=repr)]
    found += [(at, "started", slot) for slot in new if slot not in old]
    return found


def _when(status: JobStatus, log: Sequence[Event], seen_at: datetime) -> datetime:
    """When the job last changed: what the manager says where that can be, or when it was seen.

    `since` says nothing of one replica of a spread job, nor of a change that came after it.
    """
    # A job may start at the very moment it was submitted, but it does not end then.
    counted = ("started", "moved", "stopped", *(("submitted",) if status.state in _ENDED else ()))
    last = max((event.ts for event in log if event.event in counted), default=0.0)
    since = status.since
    if since is None or status.job.mode is Mode.SPREAD:
        return seen_at
    known = datetime.fromtimestamp(last, UTC) < since <= seen_at
    return since if known else seen_at


def _partner(status: JobStatus, users: Sequence[str]) -> str | None:
    others = [job for job in users if job != status.job.id]
    return others[0] if len(others) == 1 else None
