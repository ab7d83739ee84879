"""`gogh replan` and `gogh cycles` by hand, on one small embedded cluster; no server, no flows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gogh_core import estimation, telemetry
from gogh_core.allocation import greedy
from gogh_core.cli import app
from gogh_core.cli.demo import plan_unattended
from gogh_core.cli.demo_view import Silent
from gogh_core.cluster import approval_of, open_manager
from gogh_core.errors import InvalidInput
from gogh_core.settings import load
from gogh_core.store import Store


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands") / "home"


@pytest.fixture
def gogh(home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command; nothing new comes from telemetry, and plans are made by the greedy rule."""
    monkeypatch.setattr("gogh_core.planning.steps.plan", lambda problem, **_: greedy(problem))
    monkeypatch.setenv("GOGH_HOME", str(home))
    monkeypatch.setenv("GOGH_SIMULATION__SERVERS", "3")
    monkeypatch.setenv("GOGH_SIMULATION__JOBS_PER_HOUR", "12")
    monkeypatch.setattr(telemetry, "ingest", lambda *_, **__: telemetry.IngestReport(()))
    monkeypatch.setattr(estimation, "load_estimator", lambda _: estimation.Estimator())

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(app, list(arguments))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def test_a_replan_by_hand_needs_no_server(gogh: Any) -> None:
    shown = gogh("replan", "--reason", "first look")
    assert shown.exit_code == 0
    assert "jobs" in shown.output
    assert "start " in shown.output
    listed = json.loads(gogh("cycles", "--json").output)
    assert (listed[0]["reason"], listed[0]["state"]) == ("first look", "emitted")


def test_a_dry_run_tells_the_difference(gogh: Any) -> None:
    raw = json.loads(gogh("replan", "--dry-run", "--max-moves", "0", "--json").output)
    assert raw["outcome"] == "dry_run"
    assert {"saved_w", "moves", "payback_s"} <= set(raw["diff"])
    assert len(json.loads(gogh("cycles", "--json").output)) == 1


def test_a_plan_can_wait_for_a_person(gogh: Any) -> None:
    shown = gogh("replan", "--wait-for-approval")
    assert "gogh approve" in shown.output
    listed = gogh("cycles")
    assert "waiting" in listed.output
    assert gogh("cycles", "--missed").output == "no window was missed\n"


def test_wrong_wishes_are_refused_in_one_line(gogh: Any) -> None:
    for wrong, text in (
        (("--pin", "nobody"), "not on the cluster"),
        (("--drain", "nowhere"), "not known"),
        (("--gap", "7"), "gap is 7"),
        (("--reason", "schedule"), "own reason"),
        (("--approve", "--wait-for-approval"), "exclude each other"),
    ):
        with pytest.raises(InvalidInput, match=text):
            gogh("replan", "--dry-run", *wrong)


def test_the_demo_begins_afresh(tmp_path: Path, gogh: Any) -> None:
    (tmp_path / "something").touch()
    with pytest.raises(InvalidInput, match="not empty"):
        gogh("demo", "--home", str(tmp_path))


def test_a_cap_that_stops_many_jobs_waits_for_a_person(gogh: Any) -> None:
    running = {p["job"] for p in json.loads(gogh("replan", "--json").output)["plan"]["placements"]}
    assert len(running) > 3
    shown = gogh("replan", "--power-cap", "500", "--reason", "heat")
    assert "running jobs stop, more than 2" in shown.output
    assert "gogh approve" in shown.output
    settings = load()
    state = open_manager(settings, Store(settings)).state()
    assert {status.job.id for status in state.jobs if status.slots} == running
    assert "the power cap" in gogh("uncap").output


def test_the_demo_approves_its_own_plans_and_says_so(gogh: Any, monkeypatch: Any) -> None:
    gogh("replan", "--approve")
    monkeypatch.setenv("GOGH_ALLOCATION__POWER_CAP_W", "500")
    settings = load()
    store = Store(settings)
    manager = open_manager(settings, store)
    manager.advance(settings.cycle.window_s)
    report = plan_unattended(settings, manager, store, Silent())
    assert report.outcome == "emitted"
    assert report.plan is not None
    assert len(report.plan.stops) > 2
    assert "the demo approved the plan itself: " in report.degraded[-1]
    word = approval_of(store, report.plan.id)
    assert word is not None
    assert (word.decision, word.who) == ("approved", "gogh demo")
