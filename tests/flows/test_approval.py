"""A person decides, or nobody does: what the pause of a run comes to, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from prefect.exceptions import FlowPauseTimeout

from flows import approval, desk
from flows.approval import ApprovalForm
from gogh_core.cluster import approval_of, ask_approval, decide
from gogh_core.domain import Cycle
from gogh_core.planning import CycleReport, Request
from tests.flows.examples import NOW, PLAN, STATE


class Cluster:
    """Only a clock."""

    name, real, now = "simulated", False, NOW

    def state(self) -> Any:
        return STATE


@pytest.fixture
def at_desk(settings, monkeypatch):
    monkeypatch.setattr(desk, "open_manager", lambda settings, store: Cluster())
    monkeypatch.setattr(approval, "run_id", lambda: "a-run")
    return desk.Desk(settings)


def paused(monkeypatch, answer) -> list[dict[str, Any]]:
    """What the run was paused with; `answer` is called instead of a person."""
    seen: list[dict[str, Any]] = []

    def pause(**asked: Any) -> Any:
        seen.append(asked)
        return answer()

    monkeypatch.setattr(approval, "pause_flow_run", pause)
    return seen


def waiting(at_desk) -> CycleReport:
    ask_approval(at_desk.store, PLAN.id, ("12 moves, more than 10",), NOW)
    return CycleReport(Cycle(NOW), "waiting", Request(reason="by hand"), plan=PLAN)


@pytest.mark.parametrize(("approve", "decision"), [(True, "approved"), (False, "rejected")])
def test_the_answer_of_the_form_is_kept_with_name_and_reason(
    at_desk, monkeypatch, approve, decision
):
    form = ApprovalForm(approve=approve, who=" Ada ", why="heat")
    seen = paused(monkeypatch, lambda: form)
    assert approval.ask(at_desk, waiting(at_desk))
    word = approval_of(at_desk.store, PLAN.id)
    assert word is not None
    assert (word.decision, word.who, word.why) == (decision, "Ada", "heat")
    assert seen[0]["timeout"] == at_desk.settings.guards.approval_timeout_s


def test_silence_rejects(at_desk, monkeypatch):
    def nobody() -> None:
        raise FlowPauseTimeout("Flow run was paused and never resumed")

    paused(monkeypatch, nobody)
    assert approval.ask(at_desk, waiting(at_desk))
    word = approval_of(at_desk.store, PLAN.id)
    assert word is not None
    assert (word.decision, word.who) == ("rejected", "gogh")
    assert word.why == "nobody answered within 900 s"


def test_the_form_as_it_opens_approves_nothing():
    assert not ApprovalForm().approve


def test_an_answer_given_elsewhere_meanwhile_stands(at_desk, monkeypatch):
    def elsewhere() -> ApprovalForm:
        decide(at_desk.store, PLAN.id, approve=False, who="Bob", why="no", now=NOW)
        return ApprovalForm(approve=True, who="Ada")

    paused(monkeypatch, elsewhere)
    assert approval.ask(at_desk, waiting(at_desk))
    word = approval_of(at_desk.store, PLAN.id)
    assert word is not None
    assert (word.decision, word.who) == ("rejected", "Bob")


def test_where_nobody_was_asked_the_run_does_not_pause(at_desk, monkeypatch):
    seen = paused(monkeypatch, ApprovalForm)
    report = CycleReport(Cycle(NOW), "waiting", Request(reason="by hand"), plan=PLAN)
    assert not approval.ask(at_desk, report)
    assert seen == []
