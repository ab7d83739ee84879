"""Kills: workers, server, a locked database; every window has one plan, or a stated reason.

The whole stack as on several machines: Prefect on PostgreSQL behind basic auth, two workers.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx
import psutil
import pytest

from gogh_core.cli.prefect_server import Daemon
from gogh_core.cli.stack import bring_up
from gogh_core.domain import Cycle
from gogh_core.store import Store, fetch
from tests.e2e.flows.postgres import postgres
from tests.e2e.stack import Stack, running, until

ENDED = {"emitted", "waiting", "rejected", "superseded"}
KILLED_IN = ("pending", "running", "state", "ingest", "retrain", "estimate", "allocate", "store",
             "emit", "publish")  # fmt: skip
"""Where a run is killed: before it begins, between its steps, and in each of them."""
FIRST = datetime(2030, 1, 1, tzinfo=UTC)
TWICE = """
SELECT plan_id, action_id, count(*) AS confirmed
FROM action_events
WHERE state = 'confirmed'
GROUP BY ALL
HAVING count(*) > 1
UNION ALL
SELECT plan_id, 'end of the plan', count(*)
FROM execution_events
WHERE state = 'done'
GROUP BY ALL
HAVING count(*) > 1
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with postgres() as url:
        prefect = {"database_url": url, "auth": "ada:very-secret"}
        # A source that is down, whose address and token are secrets too.
        telemetry = {
            "prometheus_url": "http://ada:url-secret@127.0.0.1:9/",
            "prometheus_token": "token-secret",
            "retries": 0,
        }
        home = tmp_path_factory.mktemp("pair")
        with running(
            home, workers=2, prefect=prefect, cycle={"window_s": 300}, telemetry=telemetry
        ) as stack:
            yield stack


def kill(stack: Stack, number: int) -> None:
    """SIGKILL a worker and the runs it started."""
    found = Daemon(f"worker-{number}", stack.settings.home.absolute()).process()
    if found is not None:
        for process in [found, *found.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def outcome(stack: Stack, window: datetime) -> tuple[str, str | None, int] | None:
    """State, detail and number of plans of the cycle of a window; None while it has none."""
    key = f"schedule:{Cycle.at(window, stack.settings.cycle.window_s).id}"
    with Store(stack.settings).read() as connection:
        rows = fetch(connection, "planning_by_key", request_key=key).to_pylist()
        if not rows:
            return None
        cycle = Cycle(rows[0]["window_start"], rows[0]["revision"])
        row = fetch(connection, "planning_cycle", cycle_id=cycle.id).to_pylist()[0]
        query = "SELECT count(*) FROM plans WHERE cycle_id = ?"
        plans = connection.execute(query, [cycle.id]).fetchall()[0][0]
    return row["state"], row["detail"], plans


def step_of(stack: Stack, ident: str) -> str:
    """The step a run is in: its newest task, or how far the run itself is."""
    record = stack.api.call("GET", f"/flow_runs/{ident}")
    body = {"flow_runs": {"id": {"any_": [ident]}}, "sort": "EXPECTED_START_TIME_DESC"}
    tasks = stack.api.call("POST", "/task_runs/filter", body)
    if not tasks or record["state_type"] not in ("RUNNING", "PENDING"):
        return str(record["state_name"]).lower()
    return str(tasks[0]["name"])


def wait_for_step(stack: Stack, ident: str, wanted: str) -> str:
    """Wait until the run is in this step or past it; where it is then."""
    late = KILLED_IN[KILLED_IN.index(wanted) :]

    def reached() -> str | None:
        step = step_of(stack, ident)
        return step if step in (*late, "completed", "failed", "crashed") else None

    return str(until(reached, f"a run in {wanted}"))


@dataclass(frozen=True)
class Blow:
    """What was done to one window, and what came of it."""

    window: int
    step: str
    """Where the run was just before its worker was killed."""
    kills: int
    server: bool
    locked_s: float
    runs: int
    state: str
    detail: str
    plans: int

    def __str__(self) -> str:
        server = ", server restarted" if self.server else ""
        return (
            f"window {self.window:2}: killed in {self.step} ({self.kills} workers{server}, "
            f"database locked {self.locked_s:.1f} s) -> {self.state}, {self.plans} plan, "
            f"{self.runs} runs"
        )


def strike(stack: Stack, number: int, chance: random.Random) -> Blow:
    """Begin a window, kill what works on it anywhere, and let it be gone on with."""
    window = FIRST + timedelta(seconds=number * stack.settings.cycle.window_s)
    moment = {"window": window.isoformat()}
    ident = stack.api.run("reallocation/reallocation", moment)["id"]
    step = wait_for_step(stack, ident, chance.choice(KILLED_IN))
    time.sleep(chance.uniform(0, 0.5))
    workers = [1, 2] if number % 2 == 0 else [1]
    for worker in workers:
        kill(stack, worker)
    restart = number % 3 == 1
    if restart:
        Daemon("server", stack.settings.home.absolute()).stop(grace_s=5)
    locked_s = chance.uniform(0, 3)
    with Store(stack.settings).gate():  # the database is locked for a moment
        time.sleep(locked_s)
    bring_up(stack.settings, workers=2, say=lambda line: None)
    Daemon("watch", stack.settings.home.absolute()).stop()  # `up` started it, and events replan

    def ended() -> bool:
        found = outcome(stack, window)
        return found is not None and found[0] in ENDED

    runs = 1
    for _ in range(6):
        stack.api.run("reallocation/reallocation", moment)
        runs += 1
        with contextlib.suppress(AssertionError):
            until(ended, f"the end of window {number}", patience_s=60)
            break
    bury(stack, ident)
    state, detail, plans = outcome(stack, window) or ("missing", None, 0)
    blow = Blow(number, step, len(workers), restart, locked_s, runs, state, detail or "", plans)
    print(blow, flush=True)
    return blow


def bury(stack: Stack, ident: str) -> None:
    """End the run that was killed: one that gave no sign of life before stays pending for ever."""
    record = stack.api.call("GET", f"/flow_runs/{ident}")
    if record["state_type"] in ("PENDING", "RUNNING", "CANCELLING"):
        state = {"type": "CRASHED", "name": "Crashed", "message": "killed by the test"}
        stack.api.call("POST", f"/flow_runs/{ident}/set_state", {"state": state, "force": True})


def survive(stack: Stack, windows: int, seed: int) -> None:
    """Every window has exactly one plan, emitted once, or a stated reason why not."""
    chance = random.Random(seed)
    with stack.quiet():  # the windows come in fast motion, not from the wall's own cadence
        blows = [strike(stack, number, chance) for number in range(windows)]
    print("killed in:", dict(Counter(blow.step for blow in blows)))
    print("ended as:", dict(Counter(blow.state for blow in blows)), flush=True)
    for blow in blows:
        assert blow.state in ENDED or blow.detail, f"{blow} without a reason"
        assert blow.plans <= 1, blow
        assert (blow.state == "emitted") <= (blow.plans == 1), blow
    with Store(stack.settings).read() as connection:
        twice = connection.execute(TWICE).fetchall()
    assert twice == [], "no plan is carried out twice, no job placed twice by one plan"


@pytest.mark.e2e
def test_basic_auth_keeps_strangers_out_and_secrets_in(pair: Stack):
    for path in ("/flow_runs/count", "/artifacts/count"):
        answer = httpx.post(f"{pair.api.url}{path}", json={}, timeout=60, trust_env=False)
        assert answer.status_code == 401
    home = pair.settings.home.absolute()
    for path in [*home.rglob("*.log"), *home.rglob("*.json"), *home.rglob("*.yaml")]:
        assert "very-secret" not in path.read_text(errors="replace"), path
    answer = httpx.get(f"{pair.ui}/", timeout=60, trust_env=False)
    assert answer.status_code == 200
    assert pair.up["addresses"]["ui"].startswith("http://127.0.0.1:")


@pytest.mark.e2e
def test_two_workers_on_postgresql_share_the_runs(pair: Stack):
    asked = [pair.api.run("validate/validate", {})["id"] for _ in range(4)]
    runs = [pair.api.wait(ident, timeout_s=300) for ident in asked]
    assert {run["state_type"] for run in runs} == {"COMPLETED"}
    url = pair.settings.prefect.database_url
    assert url is not None
    assert "postgresql" in url.get_secret_value()
    assert not list(pair.settings.home.rglob("prefect.db")), "nothing is in SQLite"
    found = pair.api.call("POST", f"/work_pools/{pair.settings.prefect.pool}/workers/filter", {})
    assert len([worker for worker in found if worker["status"] == "ONLINE"]) == 2


@pytest.mark.e2e
def test_killed_workers_a_restarted_server_and_a_locked_database_lose_nothing(pair: Stack):
    survive(pair, windows=3, seed=1)


@pytest.mark.e2e
def test_no_secret_is_in_artifacts_logs_runs_or_the_store(pair: Stack):
    """After a cycle that did without a source, and said so."""
    with pair.quiet():
        run = pair.run("reallocation", {"window": "2031-01-01T00:00:00+00:00"})
    assert "⚠ prometheus unavailable" in run["name"], run["state"]["message"]
    url = pair.settings.prefect.database_url
    assert url is not None
    secrets = ("very-secret", "url-secret", "token-secret", url.get_secret_value())
    told = {
        path: json.dumps(pair.api.call("POST", f"/{path}/filter", {"limit": 200}))
        for path in ("artifacts", "logs", "flow_runs", "task_runs", "deployments")
    }
    assert "prometheus unavailable" in told["artifacts"]
    with Store(pair.settings).read() as connection:
        for (table,) in connection.execute("SHOW TABLES").fetchall():
            told[table] = str(connection.execute(f'SELECT * FROM "{table}"').fetchall())
    assert "prometheus unavailable" in told["cycles"]
    for place, text in told.items():
        assert not [secret for secret in secrets if secret in text], place


@pytest.mark.soak
def test_two_hours_of_cadence_with_kills(pair: Stack):
    survive(pair, windows=24, seed=2)
