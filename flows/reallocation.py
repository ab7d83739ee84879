"""The whole corridor, on the cadence."""

from __future__ import annotations

from datetime import datetime

from prefect import flow

from flows.cadence import plan_window, scheduled_key
from flows.desk import Desk, Outcome, told
from gogh_core.planning import Request

__all__ = ["reallocation"]


@flow(name="reallocation", flow_run_name="reallocation")
@told
def reallocation(window: datetime | None = None) -> Outcome:
    """Ingest, validate, retrain P2, estimate with P1 and P2, allocate the next window, emit.

    Each step goes on with what is good and says in the run's name what it did without; the run
    fails only where planning would be unsafe. A window that was planned already is left alone.

    Args:
        window: A moment of the window to plan; empty means the one that is now. A window that has
            passed becomes the newest one.

    """
    desk = Desk()
    key = scheduled_key(desk, window)
    return plan_window(desk, Request(), key=key)
