"""What is read from the store about GOGH's own work: one short function for each figure.

All of them read the published snapshot, so that a dashboard never waits for a cycle nor a cycle
for a dashboard; before the first snapshot there is nothing to tell.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gogh_core.store import Store, fetch_rows

__all__ = [
    "accuracy",
    "batches",
    "held",
    "last_window",
    "missed",
    "newest",
    "rows_of",
    "versions",
    "windows",
]

Rows = list[dict[str, Any]]


def rows_of(store: Store, name: str, **parameters: Any) -> Rows:
    """The rows of one step on the snapshot; none while nothing has been published."""
    if not store.snapshot_path.exists():
        return []
    with store.snapshot() as connection:
        return fetch_rows(connection, name, **parameters)


def windows(store: Store, *, rows: int = 24) -> Rows:
    """Planned and measured draw and kept promises of the newest windows, oldest first."""
    return rows_of(store, "watch_windows", rows=rows)


def last_window(store: Store) -> dict[str, Any] | None:
    """The newest window that is over and was measured; None before the first."""
    found = rows_of(store, "watch_last_window")
    return found[0] if found else None


def accuracy(store: Store, *, rows: int = 24) -> Rows:
    """Median relative error of each network by window, oldest first."""
    return rows_of(store, "watch_accuracy", rows=rows)


def batches(store: Store, *, rows: int = 40) -> Rows:
    """What the contracts said of the newest batch of each source."""
    return rows_of(store, "watch_batches", rows=rows)


def held(store: Store) -> Rows:
    """What is in quarantine, by expectation."""
    return rows_of(store, "watch_quarantine")


def missed(store: Store, since: datetime) -> list[str]:
    """Running jobs whose promise was missed all the time since then."""
    return [row["job_id"] for row in rows_of(store, "watch_missed", since=since)]


def versions(store: Store, *, rows: int = 12) -> Rows:
    """The newest versions of the networks."""
    return rows_of(store, "watch_versions", rows=rows)


def newest(store: Store) -> dict[str, Any] | None:
    """The newest cycle with a plan; None before the first."""
    found = rows_of(store, "watch_newest")
    return found[0] if found else None
