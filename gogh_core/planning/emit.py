"""The last step: the plan is handed over, or waits for a person first."""

from __future__ import annotations

from datetime import datetime

from gogh_core.cluster import ClusterManager, ExecutionReport, approval_of, ask_approval, carry_out
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
    """Carry the plan out, or ask for approval first where the request wants that."""
    if request.wait_for_approval and plan.status != "infeasible":
        ask_approval(store, plan.id, ("the request asks for it",), now)
        limit_s = settings.guards.approval_timeout_s
        word = approval_of(store, plan.id, now=now, timeout_s=limit_s)
        if word is not None and word.decision != "approved":
            waits = word.decision == "asked"
            detail = "waits for approval" if waits else f"{word.decision} by {word.who}: {word.why}"
            return ExecutionReport(
                plan.id, cycle_id, "waiting" if waits else "rejected", detail, (), (), 0.0
            )
    return carry_out(
        plan, basis, manager=manager, store=store, settings=settings, cycle_id=cycle_id, now=now
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
