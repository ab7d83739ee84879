"""A paused run on a real Prefect server: answered in the shell, closed by a newer plan, resumed."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.testing.utilities import prefect_test_harness

from flows import desk, replan
from flows.forms import ReplanForm
from gogh_core import estimation, telemetry
from gogh_core.allocation import greedy
from gogh_core.cluster import asked, decide
from gogh_core.errors import InvalidInput
from gogh_core.planning import Request, list_cycles, run_cycle, settle_plan
from gogh_core.planning import steps as planning_steps
from tests.conftest import own_settings
from tests.e2e.stack import until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.fixture
def at_desk(tmp_path, monkeypatch) -> desk.Desk:
    """Real store, cluster, journal and pause; telemetry, networks and solver are cut short."""
    settings = own_settings(
        tmp_path,
        simulation={"servers": 3, "jobs_per_hour": 10},
        guards={"approval_timeout_s": 120},
    )
    monkeypatch.setattr(desk, "load", lambda: settings)
    monkeypatch.setattr(planning_steps, "plan", lambda problem, **_: greedy(problem))
    monkeypatch.setattr(telemetry, "ingest", lambda *_, **__: telemetry.IngestReport(()))
    monkeypatch.setattr(estimation, "load_estimator", lambda _: estimation.Estimator())
    return desk.Desk()


def run_of(ident: str) -> Any:
    with get_client(sync_client=True) as client:
        return client.read_flow_run(ident)


def paused(at_desk: desk.Desk) -> dict[str, Any]:
    """The question, once a run is paused for it."""

    def found() -> dict[str, Any] | None:
        rows = [row for row in asked(at_desk.store) if row["run_id"]]
        return rows[0] if rows and run_of(rows[0]["run_id"]).state.is_paused() else None

    return dict(until(found, "a paused run", patience_s=120))


def replanned(at_desk: desk.Desk, meanwhile: Callable[[dict[str, Any]], None]) -> Any:
    """The record of a run that waited for approval while `meanwhile` happened beside it."""
    seen: dict[str, Any] = {}

    def beside() -> None:
        seen.update(paused(at_desk))
        seen["name"] = run_of(seen["run_id"]).name
        meanwhile(seen)

    other = threading.Thread(target=contextvars.copy_context().run, args=(beside,))
    other.start()
    replan.replan(ReplanForm(reason="by hand", wait_for_approval=True), return_state=True)
    other.join(120)
    assert seen["name"].endswith(" · waits for approval")
    return run_of(seen["run_id"])


def test_resuming_approves_and_carries_out(at_desk: desk.Desk) -> None:
    def resume(question: dict[str, Any]) -> None:
        with get_client(sync_client=True) as client:
            client.resume_flow_run(question["run_id"], run_input={"who": "Ada"})

    run = replanned(at_desk, resume)
    assert run.state.is_completed(), run.state.message
    assert run.name.endswith(" · approved by Ada")
    assert list_cycles(at_desk.store)[0]["state"] == "emitted"


def test_silence_rejects_and_ends_the_run(at_desk: desk.Desk, monkeypatch) -> None:
    guards = at_desk.settings.guards.model_copy(update={"approval_timeout_s": 8.0})
    hasty = at_desk.settings.model_copy(update={"guards": guards})
    monkeypatch.setattr(desk, "load", lambda: hasty)
    run = replanned(at_desk, lambda question: None)
    assert run.state.is_completed(), run.state.message
    assert run.name.endswith(" · rejected by gogh")
    assert list_cycles(at_desk.store)[0]["state"] == "rejected"


def test_an_answer_in_the_shell_ends_the_paused_run(at_desk: desk.Desk) -> None:
    def shell(question: dict[str, Any]) -> None:
        how: Any = {"who": "Bob", "why": "quiet night", "now": at_desk.clock()}
        decide(at_desk.store, question["plan_id"], approve=True, **how)
        settle_plan(
            at_desk.settings,
            manager=at_desk.manager,
            store=at_desk.store,
            plan_id=question["plan_id"],
        )
        with pytest.raises(InvalidInput, match="was already approved by Bob"):
            decide(at_desk.store, question["plan_id"], approve=False, **how | {"who": "Ada"})

    run = replanned(at_desk, shell)
    assert run.state.is_completed(), run.state.message
    assert run.name.endswith(" · approved by Bob")
    assert list_cycles(at_desk.store)[0]["state"] == "emitted"


def test_a_question_that_a_newer_plan_closes_ends_its_run_with_that_word(
    at_desk: desk.Desk,
) -> None:
    def newer(question: dict[str, Any]) -> None:
        report = run_cycle(
            at_desk.settings,
            manager=at_desk.manager,
            store=at_desk.store,
            request=Request(reason="newer"),
        )
        assert report.outcome == "emitted"

    run = replanned(at_desk, newer)
    assert run.state.is_completed(), run.state.message
    assert run.name.endswith(" · superseded")
    assert "superseded" in run.state.message
    states = {row["reason"]: row["state"] for row in list_cycles(at_desk.store)}
    assert states == {"by hand": "superseded", "newer": "emitted"}
