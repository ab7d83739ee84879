"""A person decides, or nobody does: what the pause of a run comes to, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from prefect.exceptions import FlowPauseTimeout

from flows import approval, desk
from flows.approval import ApprovalForm
from gogh_core.cluster import Approval, approval_of, ask_approval, asked, decide
from gogh_core.domain import Cycle
from gogh_core.planning import CycleReport, Request
from tests.flows.examples import NOW, PLAN, STATE

RUN = "00000000-0000-0000-0000-000000000001"


class Cluster:
    """Only a clock."""

    name, real = "simulated", False

    def clock(self) -> Any:
        return NOW

    def state(self) -> Any:
        return STATE


@pytest.fixture
def at_desk(settings, monkeypatch):
    monkeypatch.setattr(desk, "open_manager", lambda settings, store: Cluster())
    monkeypatch.setattr(approval, "run_id", lambda: RUN)
    return desk.Desk(settings)


def paused(monkeypatch, answer) -> list[dict[str, Any]]:
    """What the run was paused with; `answer` is called instead of a person."""
    seen: list[dict[str, Any]] = []

    def pause(**asked: Any) -> Any:
        seen.append(asked)
        return answer()

    monkeypatch.setattr(approval, "pause_flow_run", pause)
    return seen


def ask(at_desk) -> Approval:
    """The word that comes of the question; it is the one in the store."""
    question = ask_approval(at_desk.store, PLAN.id, ("12 moves, more than 10",), NOW)
    report = CycleReport(Cycle(NOW), "waiting", Request(reason="by hand"), plan=PLAN)
    word = approval.ask(at_desk, report, question)
    assert word == approval_of(at_desk.store, PLAN.id)
    return word


@pytest.mark.parametrize(
    ("choice", "decision"),
    [({}, "approved"), ({"reject": True}, "rejected")],
)
def test_submitting_approves_and_rejecting_is_a_choice(at_desk, monkeypatch, choice, decision):
    form = ApprovalForm(who=" Ada ", why="heat", **choice)
    seen = paused(monkeypatch, lambda: form)
    word = ask(at_desk)
    assert (word.decision, word.who, word.why) == (decision, "Ada", "heat")
    assert seen[0]["timeout"] > at_desk.settings.guards.approval_timeout_s, "ours comes first"


def test_silence_rejects(at_desk, monkeypatch):
    def nobody() -> None:
        raise FlowPauseTimeout("Flow run was paused and never resumed")

    paused(monkeypatch, nobody)
    word = ask(at_desk)
    assert (word.decision, word.who) == ("rejected", "gogh")
    assert word.why == "nobody answered within 900 s"


def test_the_log_says_that_it_waits_with_the_link_and_the_command(at_desk, monkeypatch, caplog):
    page = f"http://127.0.0.1:4200/runs/flow-run/{RUN}"

    def look() -> ApprovalForm:
        assert [row["run_id"] for row in asked(at_desk.store)] == [RUN]
        return ApprovalForm()

    paused(monkeypatch, look)
    ask(at_desk)
    assert f"plan p1 waits for approval: 12 moves, more than 10. Answer at {page}" in caplog.text
    assert "gogh approve p1" in caplog.text


def test_an_answer_given_elsewhere_meanwhile_stands(at_desk, monkeypatch, caplog):
    def elsewhere() -> ApprovalForm:
        decide(at_desk.store, PLAN.id, approve=False, who="Bob", why="no", now=NOW)
        return ApprovalForm(who="Ada")

    paused(monkeypatch, elsewhere)
    word = ask(at_desk)
    assert (word.decision, word.who) == ("rejected", "Bob")
    assert "was already rejected by Bob at 2026-01-05 12:05:00 UTC: no" in caplog.text


def test_where_nobody_was_asked_the_run_does_not_pause(at_desk, monkeypatch):
    seen = paused(monkeypatch, ApprovalForm)
    report = CycleReport(Cycle(NOW), "waiting", Request(reason="by hand"), plan=PLAN)
    assert approval.answered(at_desk, report, "plan 12:05", kind="plan") == (report, "plan 12:05")
    assert seen == []
