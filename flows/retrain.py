"""P1 and P2 in full, every night."""

from __future__ import annotations

from prefect import flow
from pydantic import Field

from flows.desk import Desk, Outcome, around, run_id, told
from flows.publish import show_figures
from flows.steps import learnt
from gogh_core.planning import retrain_step

__all__ = ["retrain"]

_HOUR_S = 3600.0


@flow(name="retrain", flow_run_name="retrain")
@told
def retrain(
    budget_s: float = Field(
        _HOUR_S, title="Time (s)", description="Seconds learning may take.", gt=0, le=24 * _HOUR_S
    ),
) -> Outcome:
    """Learn from all that was measured; a version serves only when it beats the one that does."""
    desk = Desk()
    done = around(
        "retrain",
        lambda: retrain_step(desk.store, desk.settings, desk.clock(), budget_s=budget_s, full=True),
    )
    around("publish", desk.store.publish)
    if run_id():
        show_figures(desk)
    return learnt("retrain", done)
