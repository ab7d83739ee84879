"""One cycle as a flow runs it: the window it is for, and what its end means to the run.

With the embedded cluster each scheduled window first runs the virtual cluster up to its beginning:
once, however often the run is repeated, because the window on the wall is the key of the cycle.
"""

from __future__ import annotations

from datetime import datetime

from prefect.states import Completed, Failed

from flows.approval import answered
from flows.desk import Desk, Outcome, around, logger, nothing_to_do
from flows.publish import show_cycle
from gogh_core.domain import Cycle
from gogh_core.planning import CycleReport, Request, run_cycle, run_up_to_window
from gogh_core.store import now_utc

__all__ = ["plan_window", "scheduled_key"]


def scheduled_key(desk: Desk, window: datetime | None) -> str:
    """The key of a scheduled window; a virtual cluster has run up to it afterwards."""
    key = f"schedule:{Cycle.at(window or now_utc(), desk.settings.cycle.window_s).id}"
    run_up_to_window(desk.settings, desk.store, desk.manager, key=key, wall=now_utc())
    return key


def plan_window(desk: Desk, request: Request, *, key: str, kind: str = "plan") -> Outcome:
    """Run one cycle, show it, let a person decide where that is asked for, and end the run."""
    report = run_cycle(
        desk.settings,
        manager=desk.manager,
        store=desk.store,
        request=request,
        clock=desk.clock,
        report=desk.report,
        key=key,
        around=around,
    )
    for order in report.given:
        logger().info("stands until `%s`: %s", order.lifting, order)
    if report.outcome in ("done", "busy", "superseded"):
        return nothing_to_do(report.detail)
    name = show_cycle(desk, report, kind=kind)
    if report.outcome == "waiting":
        report, name = answered(desk, report, name, kind=kind)
    return _end(report, name)


def _end(report: CycleReport, name: str) -> Outcome:
    if report.outcome == "interrupted":
        return Failed(
            message="To do: see whether the cluster manager answers, then run this again; it goes "
            f"on where it stopped. Why: {report.detail}"
        )
    if report.plan is not None and report.plan.status == "infeasible":
        notes = "; ".join(report.plan.notes) or report.detail
        return Failed(message=f"To do: release pins, drains or the power cap. Why: {notes}")
    return Completed(message=f"{name}: {report.outcome}; {report.detail}")
