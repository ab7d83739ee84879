"""Each flow alone, as a plain function, on a small embedded cluster; networks and solver cut short.

What needs the networks and a server is in `tests/e2e/flows`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flows import desk, maintenance, reallocation, replan, retrain, steps, what_if
from flows.forms import ReplanForm, WhatIfForm
from gogh_core import estimation, telemetry
from gogh_core.allocation import greedy
from gogh_core.cluster import approval_of, decide
from gogh_core.cluster import asked as asked_about
from gogh_core.errors import ClusterUnavailable
from gogh_core.planning import Retrained, list_cycles
from gogh_core.planning import steps as planning_steps
from gogh_core.store import Store
from tests.conftest import own_settings


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alone")


@pytest.fixture
def at_desk(home: Path, monkeypatch: pytest.MonkeyPatch) -> desk.Desk:
    """The flows of this test work at a desk of its own; nothing new comes from telemetry."""
    settings = own_settings(home, simulation={"servers": 3, "jobs_per_hour": 10})
    monkeypatch.setattr(desk, "load", lambda: settings)
    monkeypatch.setattr(planning_steps, "plan", lambda problem, **_: greedy(problem))
    report = telemetry.IngestReport(())
    monkeypatch.setattr(telemetry, "ingest", lambda *_, **__: report)
    monkeypatch.setattr(estimation, "load_estimator", lambda _: estimation.Estimator())
    made = desk.Desk()
    if not list_cycles(made.store, rows=1):
        assert reallocation.reallocation.fn().is_completed()
    return made


def everything(store: Store) -> dict[str, int]:
    """How many rows each table has."""
    with store.read() as connection:
        names = [row[0] for row in connection.execute("SHOW TABLES").fetchall()]
        return {
            name: int(connection.execute(f'SELECT count(*) FROM "{name}"').fetchall()[0][0])
            for name in names
        }


def test_what_if_plans_with_the_changes_and_leaves_no_trace(at_desk: desk.Desk) -> None:
    state = at_desk.manager.state()
    before, rows = state.jobs, everything(at_desk.store)
    like, lost = state.jobs[0].job.id, state.servers[0].server.id
    asked = {
        "as it is": WhatIfForm(),
        "more": WhatIfForm(add_servers=[{"gpu_type": "h100", "gpus": 8, "count": 2}]),
        "less": WhatIfForm(lose_servers=[lost]),
        "jobs": WhatIfForm(add_jobs=[{"like": like, "count": 2}]),
        "faster": WhatIfForm(objective="throughput", max_moves=0),
    }
    told = {name: what_if.what_if.fn(form) for name, form in asked.items()}
    assert all(state.is_completed() for state in told.values()), told
    assert len({state.message for state in told.values()}) > 1, "changes make a difference"
    assert everything(at_desk.store) == rows
    assert at_desk.manager.state().jobs == before


def test_allocate_alone_shows_a_plan_and_sends_nothing(at_desk: desk.Desk) -> None:
    rows = everything(at_desk.store)
    done = steps.allocate.fn()
    assert done.message.startswith("allocate ")
    assert "dry_run" in done.message
    assert everything(at_desk.store) == rows


def test_ingest_validate_and_estimate_alone_tell_what_they_found(at_desk: desk.Desk) -> None:
    assert steps.ingest.fn().message.startswith("ingest · 0 rows · 0 to quarantine")
    assert steps.validate.fn().message.startswith("validate · 0 rows held")
    assert " ways to run" in steps.estimate.fn().message


def test_emit_alone_sends_a_plan_that_waits_once_somebody_approved_it(at_desk: desk.Desk) -> None:
    assert steps.emit.fn().message == "Nothing to do: no plan waits to be sent"
    asked = replan.replan.fn(ReplanForm(reason="by hand", wait_for_approval=True))
    assert " · waits for approval: waiting" in asked.message
    (waiting,) = asked_about(at_desk.store)
    plan_id = waiting["plan_id"]
    told = steps.emit.fn().message
    assert told.startswith(f"Nothing to do: plan {plan_id} waits for approval"), told
    decide(at_desk.store, plan_id, approve=True, who="Ada", why="", now=at_desk.clock())
    assert "emitted" in steps.emit.fn().message


def test_a_newer_plan_closes_the_question_about_an_older_one(at_desk: desk.Desk) -> None:
    replan.replan.fn(ReplanForm(reason="older", wait_for_approval=True))
    replan.replan.fn(ReplanForm(reason="newer", wait_for_approval=True))
    older, newer = (
        next(row for row in list_cycles(at_desk.store) if row["reason"] == reason)
        for reason in ("older", "newer")
    )
    assert (older["state"], newer["state"]) == ("superseded", "waiting")
    replan.replan.fn(ReplanForm(reason="newest"))
    assert asked_about(at_desk.store) == []
    word = approval_of(at_desk.store, newer["plan_id"])
    assert word is not None
    assert word.decision == "superseded"


def test_maintenance_ages_publishes_and_counts_the_quarantine(at_desk: desk.Desk) -> None:
    done = maintenance.maintenance.fn()
    assert done.message == "maintenance · 0 rows to Parquet · 0 in quarantine"


def test_the_nightly_retraining_learns_in_full_within_its_time(
    at_desk: desk.Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, bool]] = []

    def learn(*_: object, budget_s: float, full: bool, **__: object) -> Retrained:
        asked.append((budget_s, full))
        return Retrained(degraded=("retraining failed (no data): the serving network serves",))

    monkeypatch.setattr(retrain, "retrain_step", learn)
    done = retrain.retrain.fn(budget_s=120.0)
    assert asked == [(120.0, True)]
    assert done.is_completed(), "the serving network serves on"
    assert "⚠ retraining failed" in done.message


def test_a_cluster_that_gives_no_answer_fails_a_run_and_says_first_what_to_do(
    at_desk: desk.Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> None:
        raise ClusterUnavailable("connection refused")

    monkeypatch.setattr(at_desk.manager, "state", silent)
    monkeypatch.setattr(desk, "open_manager", lambda *_: at_desk.manager)
    for flow in (steps.ingest, steps.estimate, steps.allocate, replan.replan):
        done = flow.fn()
        assert done.is_failed()
        assert done.message.startswith("To do: see whether it runs; the last plan stays. Why: ")


def test_what_a_cycle_did_without_stands_in_its_name(
    at_desk: desk.Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = telemetry.SourceReport("prometheus", unavailable="connection refused")
    bad = telemetry.SourceReport("gpu", refused=("half of it is garbage",))
    report = telemetry.IngestReport((down, bad))
    monkeypatch.setattr(telemetry, "ingest", lambda *_, **__: report)
    done = replan.replan.fn(ReplanForm(reason="by hand"))
    assert done.is_completed()
    assert "⚠ prometheus unavailable · ⚠ gpu refused" in done.message
