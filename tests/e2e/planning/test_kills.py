"""The planning process is killed (SIGKILL) at each step and started again: one plan, emitted once.

A child process plans a window and stops at a named point: at the beginning or the end of a step, or
at one statement boundary of the store (before or after a transaction is committed). There it is
killed. Then the same cycle is run again, until it is emitted.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from gogh_core.cluster import open_manager
from gogh_core.planning import list_cycles
from gogh_core.settings import Settings, SimulationSettings
from gogh_core.store import Store
from tests.conftest import own_settings

STEPS = ("state", "ingest", "retrain", "estimate", "allocate", "store", "emit", "publish")

CHILD = """
import json, os, sys, time
from contextlib import contextmanager
from pathlib import Path
home, stop = Path(sys.argv[1]), sys.argv[2]
from gogh_core import estimation, telemetry
report = telemetry.IngestReport(())
telemetry.ingest = lambda *_, **__: report            # tests of its own kill ingest
estimation.load_estimator = lambda _: estimation.Estimator()
from gogh_core.allocation import greedy
from gogh_core.cluster import open_manager
from gogh_core.planning import run_cycle, steps
from gogh_core.settings import SimulationSettings, load
steps.plan = lambda problem, **_: greedy(problem)     # the same plan in less time
from gogh_core.store import Store
settings = load(home=home, simulation=SimulationSettings(servers=3, jobs_per_hour=10))

def wait_here():
    (home / "stopped").write_text(stop)
    time.sleep(600)

def tell(step, seconds):
    if stop == f"{step}:{'begin' if seconds == 0 else 'end'}":
        wait_here()

writes = 0
class Watched(Store):
    @contextmanager
    def write(self):
        global writes
        writes += 1
        mine = writes
        with super().write() as connection:
            yield connection
            if stop == f"write {mine}:before":
                wait_here()
        if stop == f"write {mine}:after":
            wait_here()

store = Watched(settings)
done = run_cycle(settings, manager=open_manager(settings, store), store=store, report=tell)
(home / "done").write_text(json.dumps({"outcome": done.outcome, "writes": writes}))
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("kills")
    settings = own_settings(home, simulation=SimulationSettings(servers=3, jobs_per_hour=10))
    Store(settings).migrate()
    (home / "child.py").write_text(CHILD)
    return settings


def start(settings: Settings, stop: str) -> subprocess.Popen[bytes]:
    for name in ("stopped", "done"):
        (settings.home / name).unlink(missing_ok=True)
    command = [sys.executable, str(settings.home / "child.py"), str(settings.home), stop]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GOGH_")}
    with (settings.home / "child.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def until(settings: Settings, child: subprocess.Popen[bytes]) -> str:
    """Wait until the child has stopped at its point or is done."""
    for _ in range(2400):
        for name in ("stopped", "done"):
            if (settings.home / name).exists():
                return name
        if child.poll() not in (None, 0):
            raise AssertionError((settings.home / "child.log").read_text())
        time.sleep(0.05)
    raise AssertionError("the child neither stopped nor ended")


def run_to_the_end(settings: Settings) -> dict[str, Any]:
    child = start(settings, "nowhere")
    assert until(settings, child) == "done", (settings.home / "child.log").read_text()
    assert child.wait(60) == 0
    found: dict[str, Any] = json.loads((settings.home / "done").read_text())
    return found


def kill_at(settings: Settings, stop: str) -> bool:
    """Kill a run at that point; whether it came there."""
    child = start(settings, stop)
    reached = until(settings, child) == "stopped"
    if reached:
        child.send_signal(signal.SIGKILL)
    child.wait(60)
    return reached


def check(settings: Settings, stop: str) -> None:
    """A fresh window, a run that is killed, a run that goes on: one plan, each action once."""
    store = Store(settings)
    manager = open_manager(settings, store)
    manager.advance(settings.cycle.window_s)
    reached = kill_at(settings, stop)
    again = run_to_the_end(settings)
    assert again["outcome"] in ("emitted", "done")
    assert reached or again["outcome"] == "done", f"{stop} was never reached"
    last = list_cycles(store, rows=1)[0]
    assert last["state"] == "emitted"
    with store.read() as connection:
        plans = connection.execute(
            "SELECT plan_id, emitted_at IS NOT NULL FROM plans WHERE cycle_id = ?",
            [last["cycle_id"]],
        ).fetchall()
        placed = connection.execute(
            "SELECT count(*), count(DISTINCT (job_id, server_id, gpus)) FROM placements"
            " WHERE plan_id = ?",
            [plans[0][0]],
        ).fetchall()[0]
        planned = connection.execute(
            "SELECT DISTINCT job_id FROM placements WHERE plan_id = ?", [plans[0][0]]
        ).fetchall()
        unsettled = connection.execute(
            "SELECT action_id FROM journal WHERE plan_id = ? AND state IN ('intended', 'sent')",
            [plans[0][0]],
        ).fetchall()
        told = {
            row[0]: row[1:]
            for row in connection.execute(
                "SELECT job_id, action_id, state, reason FROM journal"
                " WHERE plan_id = ? AND state IN ('failed', 'skipped')",
                [plans[0][0]],
            ).fetchall()
        }
    state = manager.state()
    runs = {status.job.id for status in state.jobs if status.slots}
    assert len(plans) == 1
    assert plans[0][1]
    assert placed[0] == placed[1] > 0
    assert unsettled == []
    # The cluster has what was planned, or differs exactly as the journal says.
    differs = runs ^ {row[0] for row in planned}
    assert differs <= set(told), (last, state.at, [s for s in state.jobs if s.job.id in differs])


@pytest.mark.e2e
@pytest.mark.parametrize("stop", [f"{step}:begin" for step in STEPS] + ["emit:end"])
def test_a_run_killed_at_a_step_is_gone_on_with(settings: Settings, stop: str) -> None:
    check(settings, stop)


@pytest.mark.e2e
def test_a_run_killed_at_any_transaction_is_gone_on_with(settings: Settings) -> None:
    """Every third transaction of a cycle, before and after it is committed."""
    store = Store(settings)
    manager = open_manager(settings, store)
    manager.advance(settings.cycle.window_s)
    writes = run_to_the_end(settings)["writes"]
    points = [f"write {n}:{when}" for n in range(1, writes + 1, 3) for when in ("before", "after")]
    print("points:", ", ".join(points))
    for stop in points[:6]:
        check(settings, stop)


@pytest.mark.soak
def test_kills_at_random_times(settings: Settings) -> None:
    dice = random.Random(7)
    for _ in range(100):
        store = Store(settings)
        manager = open_manager(settings, store)
        manager.advance(settings.cycle.window_s)
        after_s = dice.uniform(0.5, 6.0)
        print(f"killed after {after_s:.3f} s")
        child = start(settings, "nowhere")
        time.sleep(after_s)
        child.kill()
        child.wait(60)
        assert run_to_the_end(settings)["outcome"] in ("emitted", "done")
        assert list_cycles(store, rows=1)[0]["state"] == "emitted"
        with store.read() as connection:
            doubled = connection.execute(
                "SELECT cycle_id FROM plans GROUP BY 1 HAVING count(*) > 1"
            ).fetchall()
        assert doubled == []
