"""P1 and P2 in full, every night."""

from __future__ import annotations

from prefect import flow
from prefect.states import Completed
from pydantic import Field

from flows.desk import Desk, Outcome, around, rename, run_id, told
from flows.publish import show_figures
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
    longer = desk.settings.estimation.model_copy(update={"retrain_budget_s": budget_s})
    settings = desk.settings.model_copy(update={"estimation": longer})
    done = around(
        "retrain",
        lambda: retrain_step(desk.store, settings, desk.clock(), budget_s=budget_s),
    )
    around("publish", desk.store.publish)
    if run_id():
        show_figures(desk)
    name = " · ".join(["retrain", *(f"⚠ {what}" for what in done.degraded)])
    rename(name[:200])
    return Completed(message=name)
