"""Windows: what each drew and how many promises were kept, from samples, reports and records.

`measure` does so for every window that new rows may have changed, late ones included, and puts
the figures in the place of older ones (tables `measured_windows` and `job_windows`). Whatever is
said of past windows is read from there, by way of the view `windows`.
"""

from __future__ import annotations

from datetime import datetime

import duckdb

from gogh_core.settings import Settings
from gogh_core.store import fetch

__all__ = ["measure"]


def measure(connection: duckdb.DuckDBPyConnection, settings: Settings, *, now: datetime) -> None:
    """Measure the windows that are due, in the caller's transaction, before `observe`."""
    window_s = settings.cycle.window_s
    (due,) = fetch(connection, "telemetry_due", window_s=window_s, now=now).to_pylist()
    if due["since"] is None:
        return
    fetch(connection, "telemetry_energies", window_s=window_s, **due)
    fetch(connection, "telemetry_promises", **due)
    fetch(connection, "telemetry_measured", now=now)
