"""Between two windows: what waits is placed beside what runs."""

from __future__ import annotations

from prefect import flow

from flows.cadence import plan_window
from flows.desk import Desk, Outcome, run_id, told
from gogh_core.planning import Request

__all__ = ["increment"]


@flow(name="increment", flow_run_name="increment")
@told
def increment(reason: str = "by hand") -> Outcome:
    """Place waiting jobs on what is free and switch off what is idle; running jobs stay.

    Args:
        reason: Stands in the plan's record and in the run's name.

    """
    request = Request(reason=reason.strip() or "by hand", increment=True)
    return plan_window(Desk(), request, key=run_id(), kind="increment")
