"""A person decides: the run waits with a form that shows what would change.

Submitting the form approves; rejecting is a switch in it. The same question can be answered in the
shell, and a newer plan closes it: the run looks into the store while it is paused, and goes on as
soon as there is a word, whoever gave it.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import httpx
from prefect import pause_flow_run
from prefect.client.orchestration import get_client
from prefect.exceptions import FlowPauseTimeout
from prefect.input import RunInput
from pydantic import Field

from flows.desk import Desk, around, logger, rename, run_id
from flows.publish import difference_of, show_cycle
from gogh_core.cluster import Approval, approval_of, decide, show_form
from gogh_core.errors import InvalidInput, StoreError
from gogh_core.planning import CycleReport, after_answer, settle_plan

__all__ = ["ApprovalForm", "answered", "ask"]

_POLL_S = 2
# A run that Prefect's own time-out ends counts as failed: ours comes first.
_GRACE_S = 60


class ApprovalForm(RunInput):
    """What a person says about a plan. A switch, because lists do not open in Prefect's dialog."""

    reject: bool = Field(
        False,
        title="Reject",
        description="Off: submitting approves, and the plan is carried out as shown. "
        "On: it is thrown away.",
    )
    who: str = Field(
        "", title="Your name", description="Stands in the plan's record.", max_length=100
    )
    why: str = Field("", title="Why", description="For those who read it later.", max_length=500)


def answered(desk: Desk, report: CycleReport, name: str, *, kind: str) -> tuple[CycleReport, str]:
    """Wait for a person's word about the plan and do what it says; what came of it, and its name.

    Outside a run of the UI nobody waits: the plan stays as it is until the shell answers.
    """
    plan = report.plan
    word = approval_of(desk.store, plan.id) if plan is not None else None
    if plan is None or word is None:
        return report, name
    if word.decision == "asked":
        waits = f"{name} · waits for approval"
        rename(waits)
        if not run_id():
            return report, waits
        word = ask(desk, report, word)
    settled = settle_plan(
        desk.settings,
        manager=desk.manager,
        store=desk.store,
        plan_id=plan.id,
        clock=desk.clock,
        around=around,
    )
    report = after_answer(report, settled)
    show_cycle(desk, report, kind=kind)
    said = word.decision if word.decision == "superseded" else f"{word.decision} by {word.who}"
    rename(f"{name} · {said}")
    return report, f"{name} · {said}"


def ask(desk: Desk, report: CycleReport, question: Approval) -> Approval:
    """Pause until there is a word about the plan; silence rejects."""
    plan_id, limit_s = question.plan_id, desk.settings.guards.approval_timeout_s
    page = desk.settings.prefect.run_page(run_id())
    show_form(desk.store, plan_id, run_id(), desk.clock())
    logger().warning(
        "plan %s waits for approval: %s. Answer at %s or with `gogh approve %s`",
        plan_id,
        question.why,
        page,
        plan_id,
    )
    told = f"Asked because: {question.why}.\n\n{difference_of(desk, report)}"
    try:
        with _resumed_when_answered(desk, plan_id):
            form = pause_flow_run(
                wait_for_input=ApprovalForm.with_initial_data(description=told),
                timeout=int(limit_s) + _GRACE_S,
                poll_interval=_POLL_S,
            )
        return _answer(
            desk,
            plan_id,
            approve=not form.reject,
            who=form.who.strip() or "somebody",
            why=form.why or "in the UI's form",
        )
    except FlowPauseTimeout:
        return _silence(desk, plan_id)


def _answer(desk: Desk, plan_id: str, *, approve: bool, who: str, why: str) -> Approval:
    """The word that counts: this one, or that of somebody who was quicker."""
    try:
        word = decide(desk.store, plan_id, approve=approve, who=who, why=why, now=desk.clock())
        logger().info(word.told())
    except InvalidInput as error:
        logger().warning(str(error))
        found = approval_of(desk.store, plan_id)
        if found is None:
            raise
        word = found
    return word


def _silence(desk: Desk, plan_id: str) -> Approval:
    limit_s = desk.settings.guards.approval_timeout_s
    why = f"nobody answered within {limit_s:g} s"
    return _answer(desk, plan_id, approve=False, who="gogh", why=why)


@contextmanager
def _resumed_when_answered(desk: Desk, plan_id: str) -> Iterator[None]:
    """Resume this run when the question is answered elsewhere, closed, or nobody has answered."""
    over, ident = threading.Event(), UUID(run_id())
    until = time.monotonic() + desk.settings.guards.approval_timeout_s

    def look() -> None:
        while not over.wait(_POLL_S):
            try:
                word = approval_of(desk.store, plan_id)
                if word is None or word.decision == "asked":
                    if time.monotonic() < until:
                        continue
                    _silence(desk, plan_id)
                with get_client(sync_client=True) as client:
                    client.resume_flow_run(ident)
            except (StoreError, httpx.HTTPError) as error:
                logger().info("the answer could not be looked for, and is again: %s", error)

    watcher = threading.Thread(target=contextvars.copy_context().run, args=(look,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
