"""`gogh status` is the one page: everything an operator looks for first, and never in the way."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from gogh_core import estimation, telemetry
from gogh_core.allocation import greedy
from gogh_core.cli import app
from gogh_core.cli.prefect_server import Daemon
from gogh_core.cluster import ask_approval, open_manager
from gogh_core.domain import JobState, PowerState
from gogh_core.planning import Order, give, lift, run_cycle
from gogh_core.settings import Settings
from gogh_core.simulation import SimulatedCluster
from gogh_core.store import Store
from tests.conftest import own_settings

SMALL = {"servers": 3, "jobs_per_hour": 60.0}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """One cycle on a small embedded cluster, then ten minutes without another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gogh_core.planning.steps.plan", lambda problem, **_: greedy(problem))
        patch.setattr(telemetry, "ingest", lambda *_, **__: telemetry.IngestReport(()))
        patch.setattr(estimation, "load_estimator", lambda _: estimation.Estimator())
        settings = own_settings(tmp_path_factory.mktemp("page") / "home", simulation=SMALL)
        store = Store(settings)
        store.migrate()
        manager = open_manager(settings, store)
        run_cycle(settings, manager=manager, store=store)
        manager.advance(600)
    return settings


@pytest.fixture
def page(planned: Settings, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GOGH_HOME", str(planned.home))
    monkeypatch.setenv("GOGH_SIMULATION__SERVERS", "3")
    monkeypatch.setenv("GOGH_SIMULATION__JOBS_PER_HOUR", "60")

    def run(*options: str) -> str:
        result = CliRunner().invoke(app, ["status", *options], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return run


def cluster(settings: Settings) -> SimulatedCluster:
    found = open_manager(settings, Store(settings))
    assert isinstance(found, SimulatedCluster)
    return found


def test_it_says_what_runs_what_was_planned_and_who_waits_why(page: Any, planned: Settings) -> None:
    text, raw = page(), json.loads(page("--json"))
    assert "server    not running; `gogh up` starts it" in text
    assert raw["stack"]["processes"] == {}
    assert raw["at"] == cluster(planned).clock().isoformat()
    assert raw["last_cycle"]["state"] == "emitted"
    assert "last      cycle 09:00 emitted" in text
    state = cluster(planned).state()
    waiting = {status.job.id for status in state.jobs if status.state is JobState.WAITING}
    assert waiting, "jobs came after the cycle"
    assert {row["job"] for row in raw["waiting"]} == waiting
    assert "not planned yet" in text
    assert raw["fresh"] is True


def test_a_server_that_is_down_stands_on_it(page: Any, planned: Settings) -> None:
    gone = next(
        status.server.id
        for status in cluster(planned).state().servers
        if status.power is PowerState.ON
    )
    assert json.loads(page("--json"))["servers_out"] == []
    cluster(planned).fault("server_vanishes", gone)
    assert f"server {gone} is down since 2026-01-05 09:10:00" in page()
    cluster(planned).fault("server_returns", gone)


def test_a_drained_server_is_drained_since_the_order_began(page: Any, planned: Settings) -> None:
    here, store = cluster(planned), Store(planned)
    name = here.state().servers[0].server.id
    order = Order("drain", name, here.clock() - timedelta(seconds=90), "ann", here.clock())
    give(store, [order], here.state(), here.clock())
    try:
        assert f"server {name} is drained since 2026-01-05 09:08:30" in page()
    finally:
        lift(store, "drain", name, who="ann", now=here.clock(), state=here.state())


def test_an_open_question_comes_first_with_the_command_that_answers(
    page: Any, planned: Settings
) -> None:
    ask_approval(Store(planned), "plan-7", ("12 moves",), cluster(planned).clock())
    first, second = page().splitlines()[:2]
    assert first == "WAITS     for approval since 2026-01-05 09:10:00: 12 moves (plan plan-7)"
    assert second.strip() == "gogh approve plan-7, or gogh reject plan-7"
    [question] = json.loads(page("--json"))["questions"]
    assert question["approve"] == "gogh approve plan-7"


def test_a_process_of_gogh_up_that_ended_is_named(page: Any, planned: Settings) -> None:
    record = Daemon("worker-1", planned.home.absolute()).record
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text('{"pid": 1, "began": 0.0}')
    try:
        assert "worker-1 HAS ENDED; `gogh up` starts it again" in page()
    finally:
        record.unlink()


def test_it_does_not_wait_for_those_who_write(page: Any, planned: Settings) -> None:
    """While another process holds the database, the last snapshot is shown, and said to be."""
    store = Store(planned)
    store.publish()
    held, done = threading.Event(), threading.Event()

    def write() -> None:
        with store.gate():
            held.set()
            done.wait(timeout=60)

    writer = threading.Thread(target=write)
    writer.start()
    held.wait()
    try:
        text, raw = page(), json.loads(page("--json"))
    finally:
        done.set()
        writer.join()
    assert raw["fresh"] is False
    assert raw["last_cycle"]["state"] == "emitted"
    assert "as they were last published" in text
    assert json.loads(page("--json"))["fresh"] is True


def test_a_look_that_finds_the_store_free_sees_the_newest(planned: Settings) -> None:
    store = Store(planned)
    with store.glance() as seen, seen.read() as connection, seen.snapshot() as same:
        assert seen.fresh
        assert connection is same
        newest = connection.sql("SELECT max(begun_at) FROM cycles").fetchall()[0][0]
    assert cluster(planned).clock() - newest == timedelta(seconds=600)


LIGHT = """
import sys
sys.argv = ["gogh", "status"]
from gogh_core.cli import main
try:
    main()
except SystemExit:
    pass
heavy = {"pandas", "torch", "prefect", "pyomo", "httpx", "gogh_core.allocation"}
print("heavy:", sorted(heavy & set(sys.modules)))
"""


def test_it_imports_nothing_it_does_not_need(page: Any) -> None:
    """Most of a short command's time is its imports; each of these takes longer than the page."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.splitlines()[-1] == "heavy: []", done.stdout + done.stderr
