"""Questions and answers: the first answer counts, newer plans close older questions."""

from __future__ import annotations

import json
import multiprocessing
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from gogh_core.cli import app
from gogh_core.cluster import approval_of, ask_approval, asked, decide, show_form
from gogh_core.errors import InvalidInput
from gogh_core.settings import ClusterSettings, Settings
from gogh_core.store import Store
from tests.cluster.fake import NOW
from tests.cluster.kept import Embedded, gogh


@pytest.fixture
def embedded(settings, store, monkeypatch) -> Embedded:
    monkeypatch.setenv("GOGH_HOME", str(settings.home))
    return Embedded(settings, store)


def answer(settings: Settings, who: str, together: Any, told: Any) -> None:
    """One process that answers when the other one is ready too."""
    store = Store(settings)
    together.wait(60)
    try:
        word = decide(store, "p1", approve=who == "ann", who=who, why="", now=NOW)
        told.put((who, word.decision))
    except InvalidInput as error:
        told.put((who, str(error)))


def test_of_two_answers_at_the_same_time_one_counts_and_the_other_is_told_whose(
    settings, store
) -> None:
    ask_approval(store, "p1", ("4 moves, more than 2",), NOW)
    spawn = multiprocessing.get_context("spawn")
    together, told = spawn.Barrier(2), spawn.Queue()
    both = [
        spawn.Process(target=answer, args=(settings, w, together, told)) for w in ("ann", "bob")
    ]
    for process in both:
        process.start()
    said = dict(told.get(timeout=120) for _ in both)
    for process in both:
        process.join(60)
    word = approval_of(store, "p1")
    assert word is not None
    other = "bob" if word.who == "ann" else "ann"
    assert said[word.who] == word.decision == ("approved" if word.who == "ann" else "rejected")
    assert f"was already {word.decision} by {word.who} at 2026-01-05 09:00:00 UTC" in said[other]
    with store.read() as connection:
        rows = connection.execute("SELECT count(*) FROM approvals").fetchall()
    assert rows == [(2,)], "the question and one answer"


def test_an_answer_that_comes_too_late_does_not_count(store) -> None:
    ask_approval(store, "p1", ("many",), NOW)
    late = NOW + timedelta(seconds=901)
    with pytest.raises(InvalidInput, match=r"already expired by gogh .*: nobody answered within"):
        decide(store, "p1", approve=True, who="ann", why="", now=late, timeout_s=900)
    word = approval_of(store, "p1")
    assert word is not None
    assert word.decision == "expired"
    assert asked(store) == []


def test_a_question_whose_time_is_over_is_not_listed(store) -> None:
    ask_approval(store, "p1", ("many",), NOW)
    soon, late = NOW + timedelta(seconds=900), NOW + timedelta(seconds=901)
    assert len(asked(store, now=soon, timeout_s=900)) == 1
    assert asked(store, now=late, timeout_s=900) == []


def test_a_newer_question_closes_the_older_one(embedded) -> None:
    older, newer = embedded.keep(1, 0), embedded.keep(2, 1)
    assert embedded.carry(older, 1, ask="many stops").state == "waiting"
    assert embedded.carry(newer, 2, ask="many stops").state == "waiting"
    word = approval_of(embedded.store, older.id)
    assert word is not None
    assert (word.decision, word.why) == ("superseded", f"plan {newer.id} asks in its place")
    assert [row["plan_id"] for row in asked(embedded.store)] == [newer.id]
    assert embedded.carry(older, 1).state == "superseded"
    with pytest.raises(InvalidInput, match="was already superseded by gogh"):
        decide(embedded.store, older.id, approve=True, who="ann", why="", now=NOW)


def test_a_newer_plan_that_is_handed_over_closes_older_questions_with_their_cycles(
    embedded,
) -> None:
    older, newer = embedded.keep(1, 0, cycle_state="waiting"), embedded.keep(2, 1)
    embedded.carry(older, 1, ask="many stops")
    assert embedded.carry(newer, 2).state == "done"
    word = approval_of(embedded.store, older.id)
    assert word is not None
    assert (word.decision, word.why) == ("superseded", f"plan {newer.id} took its place")
    assert embedded.states()[1] == "superseded"
    assert embedded.carry(older, 1).state == "superseded"


def test_an_older_plan_does_not_close_a_newer_question(embedded) -> None:
    older, newer = embedded.keep(1, 0), embedded.keep(2, 1)
    assert embedded.carry(newer, 2, ask="many stops").state == "waiting"
    assert embedded.carry(older, 1).state == "done", "nothing newer runs"
    assert [row["plan_id"] for row in asked(embedded.store)] == [newer.id]
    decide(embedded.store, newer.id, approve=True, who="ann", why="", now=NOW)
    assert embedded.carry(newer, 2).state == "done"


def test_nobody_is_asked_where_nothing_would_be_sent(embedded) -> None:
    made = embedded.keep(1, 0)
    shown = embedded.settings.model_copy(update={"cluster": ClusterSettings(mode="advise")})
    embedded.settings = shown
    assert embedded.carry(made, 1, ask="many stops").state == "advised"
    assert asked(embedded.store) == []


class TestCommands:
    """What people type, on the embedded cluster."""

    def test_approve_carries_the_plan_out_at_once_by_the_clusters_clock(self, embedded) -> None:
        made = embedded.keep(1, 0, cycle_state="waiting")
        embedded.carry(made, 1, ask="many stops")
        said = gogh("approve", made.id, "--who", "ann", "--why", "quiet night")
        when = f"{embedded.manager.now:%Y-%m-%d %H:%M:%S}"
        assert f"approved by ann at {when} UTC: quiet night" in said
        assert "done: 1 confirmed" in said
        assert embedded.states() == {1: "emitted"}
        running = {s.job.id for s in embedded.manager.state().jobs if s.slots}
        assert embedded.jobs[0] in running
        assert "no plan waits to be sent" in gogh("emit")

    def test_the_second_answer_is_told_who_was_first(self, embedded) -> None:
        made = embedded.keep(1, 0)
        embedded.carry(made, 1, ask="many stops")
        gogh("reject", made.id[:-2], "--who", "ann", "--why", "demo today")
        assert embedded.states() == {1: "rejected"}
        with pytest.raises(InvalidInput, match=r"was already rejected by ann at .*: demo today"):
            gogh("approve", made.id[:-2], "--who", "bob")
        assert not {s.job.id for s in embedded.manager.state().jobs if s.slots}

    def test_status_shows_the_question_how_to_answer_and_where(self, embedded) -> None:
        made = embedded.keep(1, 0)
        embedded.carry(made, 1, ask="20 stops, more than 2")
        shown = gogh("status")
        assert "WAITS     for approval since 2026-01-05 09:00:00: 20 stops, more than 2" in shown
        assert f"gogh approve {made.id}" in shown
        assert "/runs/" not in shown, "no run of the UI asks"
        show_form(embedded.store, made.id, "a-run", NOW)
        page = "http://127.0.0.1:4200/runs/flow-run/a-run"
        assert page in gogh("status")
        (question,) = json.loads(gogh("status", "--json"))["questions"]
        assert (question["plan"], question["form"]) == (made.id, page)
        gogh("reject", made.id)
        assert "WAITS" not in gogh("status")

    def test_emit_without_an_id_waits_for_the_person_who_was_asked(self, embedded) -> None:
        made = embedded.keep(1, 0)
        embedded.carry(made, 1, ask="many stops")
        assert f"plan {made.id} waits for approval (many stops)" in gogh("emit")
        decide(embedded.store, made.id, approve=True, who="ann", why="", now=embedded.manager.now)
        assert json.loads(gogh("emit", "--json"))["plan"] == made.id

    def test_a_plan_nobody_asked_about_cannot_be_approved(self, embedded) -> None:
        made = embedded.keep(1, 0)
        with pytest.raises(InvalidInput, match="no approval was asked for"):
            gogh("approve", made.id)
        result = CliRunner().invoke(app, ["approve", "nothing"])
        assert "is no plan" in str(result.exception)
