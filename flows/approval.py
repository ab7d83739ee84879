"""A person decides: the run pauses with a form that shows what would change."""

from __future__ import annotations

from prefect import pause_flow_run
from prefect.exceptions import FlowPauseTimeout
from prefect.input import RunInput
from pydantic import Field

from flows.desk import Desk, logger, run_id
from flows.publish import difference_of
from gogh_core.cluster import approval_of, decide
from gogh_core.planning import CycleReport

__all__ = ["ApprovalForm", "ask"]

_POLL_S = 2


class ApprovalForm(RunInput):
    """What a person says about a plan."""

    approve: bool = Field(
        False, title="Approve", description="On: the plan is carried out as shown. Off: rejected."
    )
    who: str = Field(
        "", title="Your name", description="Stands in the plan's record.", max_length=100
    )
    why: str = Field("", title="Why", description="For those who read it later.", max_length=500)


def ask(desk: Desk, report: CycleReport) -> bool:
    """Pause until somebody decides; silence rejects. False when no decision was asked for."""
    plan = report.plan
    word = approval_of(desk.store, plan.id) if plan is not None else None
    if plan is None or word is None or word.decision != "asked" or not run_id():
        return False
    limit_s = desk.settings.guards.approval_timeout_s
    page = f"Asked because: {word.why}.\n\n{difference_of(desk, report)}"
    try:
        form = pause_flow_run(
            wait_for_input=ApprovalForm.with_initial_data(description=page),
            timeout=int(limit_s),
            poll_interval=_POLL_S,
        )
        approve, who, why = form.approve, form.who.strip() or "somebody", form.why
    except FlowPauseTimeout:
        approve, who, why = False, "gogh", f"nobody answered within {limit_s:g} s"
    newest = approval_of(desk.store, plan.id)
    if newest is not None and newest.decision == "asked":  # it may be answered elsewhere meanwhile
        decide(
            desk.store,
            plan.id,
            approve=approve,
            who=who,
            why=why or "in the UI's form",
            now=desk.clock(),
        )
    logger().info("%s by %s", "approved" if approve else "rejected", who)
    return True
