"""Retention of the tables that grow with every cycle: plans, estimates, journal, ledger, and so on.

A row that is dropped does not come back, so what a wrong clock calls too old must not go at once.
An ageing whose clock is believed notes from when on rows are kept; the rows before that are dropped
by an ageing a day of real time later that still agrees. The clock of an embedded cluster is its own
and cannot be wrong; there rows go at once.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import duckdb

from gogh_core.store.clock import Look
from gogh_core.store.texts import fetch

if TYPE_CHECKING:
    from gogh_core.store.database import Store

__all__ = ["drop_old"]

_NOTE = "retention"
_NEWEST = 3
"""Observations of each option that stay, however old they are."""


def drop_old(store: Store, look: Look) -> datetime | None:
    """Drop the rows that are older than the retention and may go now; from when on rows stayed."""
    if look.doubt:
        return None
    oldest = look.now - timedelta(days=store.settings.store.retention_days)
    with store.write() as connection:
        before = oldest if store.virtual else _agreed(connection, look, oldest)
        if before is not None:
            fetch(connection, "store_drop_old", before=before, newest=_NEWEST)
    return before


def _agreed(connection: duckdb.DuckDBPyConnection, look: Look, oldest: datetime) -> datetime | None:
    """From when on rows are kept, as this ageing and one a day ago say; None where none did."""
    found = fetch(connection, "store_fact", name=_NOTE)["value"].to_pylist()
    noted = json.loads(found[0]) if found else None
    before = datetime.fromisoformat(noted["before"]) if noted else None
    agreed = noted is not None and look.agrees_with(noted["steady_s"])
    if before is None or agreed or oldest < before:
        note = {"before": oldest.isoformat(), "steady_s": look.steady_s}
        fetch(connection, "store_set_fact", name=_NOTE, value=json.dumps(note))
    return min(before, oldest) if agreed and before is not None else None
