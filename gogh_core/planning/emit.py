"""The last step: the plan is handed over, or waits for a person first."""

from __future__ import annotations

from datetime import datetime

from gogh_core.cluster import ClusterManager, ExecutionReport, carry_out
from gogh_core.domain import ClusterState, Plan
from gogh_core.planning.request import Request
from gogh_core.settings import Settings
from gogh_core.store import Store

__all__ = ["emit_step", "left_out"]


def emit_step(
    plan: Plan,
    basis: ClusterState,
    *,
    manager: ClusterManager,
    store: Store,
    settings: Settings,
    request: Request,
    cycle_id: str,
    now: datetime,
) -> ExecutionReport:
    """Carry the plan out; where the request wants it, a person is asked first.

    Once somebody has been asked, the plan waits for the answer whoever tries to send it.
    """
    return carry_out(
        plan,
        basis,
        manager=manager,
        store=store,
        settings=settings,
        cycle_id=cycle_id,
        now=now,
        ask=("the request asks for it",) if request.wait_for_approval else (),
    )


def left_out(execution: ExecutionReport) -> list[str]:
    """Actions that were skipped or failed, in one line; a job that has ended needs none."""
    lost = [
        record
        for record in execution.records
        if record.state in ("skipped", "failed") and "has ended" not in record.reason
    ]
    if not lost:
        return []
    first = f"{lost[0].action.id}, {lost[0].reason}"
    return [f"{len(lost)} of {len(execution.records)} actions were not carried out: {first}"]
