"""A new plan now, by hand or by an event."""

from __future__ import annotations

from prefect import flow

from flows.cadence import plan_window
from flows.desk import Desk, Outcome, run_id, told
from flows.forms import ReplanForm

__all__ = ["replan"]

_AS_IT_STANDS = ReplanForm()


@flow(name="replan", flow_run_name="replan")
@told
def replan(request: ReplanForm = _AS_IT_STANDS) -> Outcome:
    """Plan what is left of this window again, with the wishes of the form.

    Two replans at once are made one after the other, and the newer request wins. A dry run only
    shows what would change.

    Args:
        request: What this plan should do differently.

    """
    desk = Desk()
    kind = "dry run" if request.dry_run else "replan"
    return plan_window(desk, request.to_request(), key=run_id(), kind=kind)
