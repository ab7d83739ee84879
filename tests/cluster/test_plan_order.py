"""Window and revision order plans, not clocks: within a window the embedded cluster's stands."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from gogh_core.cli import app
from gogh_core.cluster import executions
from gogh_core.domain import Cycle, Plan
from tests.cluster.fake import NOW, plan
from tests.cluster.kept import Embedded, gogh, keep


@pytest.fixture
def embedded(settings, store, monkeypatch) -> Embedded:
    monkeypatch.setenv("GOGH_HOME", str(settings.home))
    return Embedded(settings, store)


def test_emit_without_an_id_sends_the_newest_revision(embedded) -> None:
    first = embedded.keep(0, 0)
    assert embedded.carry(first, 0).state == "done"
    embedded.keep(2, 1)
    newest = embedded.keep(10, 2)
    assert json.loads(gogh("emit", "--json"))["plan"] == newest.id
    again = gogh("emit")
    assert "no plan waits to be sent" in again


def test_status_compares_with_the_newest_revision_that_was_handed_over(embedded) -> None:
    for revision in (0, 2, 10):
        embedded.carry(embedded.keep(revision, revision % 3), revision)
    never = embedded.keep(11, 3)
    shown = json.loads(gogh("status", "--json"))
    assert shown["plan"].endswith("-10-x")
    assert shown["plan"] != never.id
    assert [row["plan_id"].split("-")[1] for row in executions(embedded.store)] == ["10", "2", "0"]


def test_an_older_revision_is_not_sent_after_a_newer_one(embedded) -> None:
    older, newer = embedded.keep(1, 0), embedded.keep(2, 1)
    assert embedded.carry(newer, 2).state == "done"
    late = embedded.carry(older, 1)
    assert late.state == "superseded"
    assert newer.id in late.detail
    assert late.records == ()


def test_a_plan_of_an_earlier_window_is_not_sent_after_a_later_one(embedded) -> None:
    earlier = embedded.window_start - timedelta(seconds=embedded.settings.cycle.window_s)
    old = embedded.keep(5, 0, window_start=earlier)
    new = embedded.keep(0, 1)
    assert json.loads(gogh("emit", "--json"))["plan"] == new.id
    result = CliRunner().invoke(app, ["emit", old.id])
    assert result.exit_code == 1
    assert "superseded" in result.output


def test_a_plan_that_ended_is_not_sent_again_and_the_cycle_says_it_was_sent(embedded) -> None:
    made = embedded.keep(1, 0)
    gogh("emit")
    rows = json.loads(gogh("cycles", "--json"))
    assert (rows[0]["revision"], rows[0]["state"]) == (1, "emitted")
    assert json.loads(gogh("status", "--json"))["plan"] == made.id


def test_history_and_queue_follow_the_revisions(embedded) -> None:
    job = embedded.jobs[5]
    for revision in (0, 2, 10):
        made = plan(f"{Cycle(embedded.window_start, revision).id}-x")
        waits = made.to_dict() | {"waiting": [{"job": job, "reason": f"as r{revision} says"}]}
        told = Plan.from_dict(waits)
        keep(embedded.store, told, revision=revision, window_start=embedded.window_start)
        embedded.carry(told, revision)
    with embedded.store.write() as connection:
        connection.execute(
            "INSERT INTO jobs BY NAME SELECT ? AS job_id, 'c' AS job_class, 'm' AS model,"
            " 'training' AS kind, 'gang' AS mode, [1] AS gpu_counts, 1 AS max_gpus,"
            " 0 AS required_throughput, 'steps/s' AS unit, 1 AS priority, 'false' AS shareable,"
            " true AS movable, 0 AS move_cost_j, ? AS submitted_at, ? AS seen_at,"
            " 'waiting' AS state",
            [job, NOW, NOW],
        )
    embedded.store.publish()
    assert json.loads(gogh("query", "queue", "--json"))[0]["reason"] == "as r10 says"
    history = json.loads(gogh("query", "plan_history", "--json"))
    assert [row["cycle_id"].split("-")[1] for row in history] == ["10", "2", "0"]
