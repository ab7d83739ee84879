"""The stack as people use it: every deployment, events, metrics, twice up."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import httpx
import pytest

from gogh_core.cli.prefect_server import Daemon
from gogh_core.cli.stack import bring_up
from gogh_core.cli.watching import crash_silent, look_once
from gogh_core.cluster import open_manager
from gogh_core.domain import PowerState
from gogh_core.settings import load
from gogh_core.simulation import SimulatedCluster
from gogh_core.store import Store
from gogh_core.watch import Kind, rules
from tests.e2e.stack import Stack, until

ALERTS = Path(__file__).resolve().parents[2] / "flows" / "alerts_test.yml"
KINDS = get_args(Kind)
BY_HAND = ["ingest", "validate", "retrain-p2", "estimate", "allocate", "emit", "maintenance"]


@pytest.fixture(scope="module")
def planned(stack: Stack) -> Stack:
    """The stack with at least one plan in it."""
    until(lambda: plans(stack), "the first plan")
    return stack


def plans(stack: Stack) -> list[dict]:
    """Runs of the cadence that planned their window, newest first."""
    return [run for run in stack.runs("reallocation") if run["name"].startswith("plan ")]


@pytest.mark.e2e
def test_up_twice_starts_nothing_twice(stack: Stack):
    home = stack.settings.home.absolute()
    names = ("server", "worker-1", "watch", "metrics")
    before = {name: Daemon(name, home).process() for name in names}
    assert all(before.values())
    again = bring_up(stack.settings, say=lambda line: None)
    assert again["addresses"]["ui"] == stack.ui
    assert {name: Daemon(name, home).process() for name in before} == before


@pytest.mark.e2e
def test_every_step_runs_alone(planned: Stack):
    stack = planned
    asked = {name: stack.api.run(f"{name}/{name}", {})["id"] for name in BY_HAND}
    grown = {"changes": {"add_servers": [{"gpu_type": "v100", "gpus": 4, "count": 2}]}}
    asked["what-if"] = stack.api.run("what-if/what-if", grown)["id"]
    asked["retrain"] = stack.api.run("retrain/retrain", {"budget_s": 15})["id"]
    runs = {name: stack.api.wait(ident, timeout_s=420) for name, ident in asked.items()}
    told = {name: (run["state_type"], run["state"]["message"]) for name, run in runs.items()}
    assert {state for state, _ in told.values()} == {"COMPLETED"}, told
    assert runs["what-if"]["name"].startswith("what if · ")
    assert "gogh-what-if" in stack.artifacts(asked["what-if"])
    assert "gogh-estimates" in stack.artifacts(asked["estimate"])


@pytest.mark.e2e
def test_a_window_that_was_planned_is_left_alone(stack: Stack):
    moment = {"window": "2031-01-01T00:00:30+00:00"}
    with stack.quiet():
        first, second = stack.run("reallocation", moment), stack.run("reallocation", moment)
    assert first["name"].startswith("plan "), first["state"]["message"]
    assert second["state_type"] == "COMPLETED"
    assert second["state"]["message"].startswith("Nothing to do")


@pytest.mark.e2e
def test_a_failed_run_says_first_what_to_do(stack: Stack):
    wrong = {"request": {"reason": "mistake", "drain": ["no-such-server"]}}
    with stack.quiet():
        run = stack.run("replan", wrong)
    assert run["state_type"] == "FAILED"
    assert run["state"]["message"].startswith("To do: ")
    assert "no-such-server" in run["state"]["message"]


@pytest.mark.e2e
def test_wrong_values_are_refused_by_the_api_too(stack: Stack):
    deployment = stack.api.deployment("replan/replan")
    answer = httpx.post(
        f"{stack.api.url}/deployments/{deployment['id']}/create_flow_run",
        json={"parameters": {"request": {"gap": 7}}, "enforce_parameter_schema": True},
        auth=tuple(stack.password.split(":", 1)),
        timeout=60,
        trust_env=False,
    )
    assert answer.status_code in (409, 422), answer.text


def event(kind: str, target: str) -> dict:
    return {
        "id": str(uuid.uuid4()),
        "event": f"gogh.event.{kind}",
        "occurred": datetime.now(UTC).isoformat(),
        "resource": {"prefect.resource.id": f"gogh.{target}"},
        "payload": {"reason": f"{kind} of {target}"},
    }


def replans(stack: Stack, reason: str) -> list[dict]:
    """Replans that the automation made of an event."""
    wanted = f"event: {reason}"
    return [r for r in stack.runs("replan") if wanted in json.dumps(r["parameters"])]


@pytest.mark.e2e
def test_up_begins_with_a_cycle_and_says_when_the_next_one_comes(stack: Stack):
    """Nobody has to ask for it, and the schedule's run of the same window does nothing."""
    plan = until(lambda: plans(stack), "the first plan")[-1]
    first = stack.runs("reallocation")[-1]
    assert first["id"] == (stack.up["first_run"] or first["id"])
    began = datetime.fromisoformat(first["expected_start_time"])
    upcoming = datetime.fromisoformat(stack.up["next_cycle"])
    assert timedelta(0) < upcoming - began <= timedelta(seconds=stack.settings.cycle.window_s + 5)
    assert [run["name"] for run in plans(stack)].count(plan["name"]) == 1


@pytest.mark.e2e
@pytest.mark.parametrize(("state", "silent_s"), [("PENDING", 301), ("RUNNING", 91)])
def test_a_run_without_a_process_is_marked_as_crashed(stack: Stack, state: str, silent_s: int):
    later = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2200-01-01T00:00:00Z"}}
    flow = stack.api.deployment("ingest/ingest")["id"]
    with stack.quiet():
        run = stack.api.call("POST", f"/deployments/{flow}/create_flow_run", {"state": later})["id"]
        body = {"state": {"type": state, "name": state.capitalize()}, "force": True}
        stack.api.call("POST", f"/flow_runs/{run}/set_state", body)
        assert crash_silent(stack.api, datetime.now(UTC)) == [], "it may still come"
        crash_silent(stack.api, datetime.now(UTC) + timedelta(seconds=silent_s))
        assert stack.api.call("GET", f"/flow_runs/{run}")["state_type"] == "CRASHED"


@pytest.mark.e2e
def test_a_run_that_lives_is_not_marked(stack: Stack):
    with stack.quiet():
        ident = stack.api.run("retrain/retrain", {"budget_s": 60})["id"]

        def beats() -> bool:
            body = {"filter": {"event": {"name": ["prefect.flow-run.heartbeat"]},
                               "resource": {"id": [f"prefect.flow-run.{ident}"]}}}  # fmt: skip
            return bool(stack.api.call("POST", "/events/filter", body)["events"])

        until(beats, "a heartbeat")
        assert crash_silent(stack.api, datetime.now(UTC) + timedelta(seconds=60)) == []
        assert stack.api.wait(ident, timeout_s=300)["state_type"] == "COMPLETED"


@pytest.mark.e2e
def test_a_storm_of_events_of_every_kind_gives_one_replan(planned: Stack):
    stack, mark = planned, uuid.uuid4().hex
    with stack.quiet():
        time.sleep(stack.settings.prefect.damper_s + 5)  # an event before this one may be damped
        storm = [event(kind, f"{mark}-{n}") for n in range(2) for kind in KINDS]
        stack.api.call("POST", "/events", storm)

        def mine() -> list[dict]:
            return [r for r in stack.runs("replan") if mark in json.dumps(r["parameters"])]

        first = until(mine, "a replan by the events")[0]
        done = stack.api.wait(first["id"], timeout_s=300)
        assert done["state_type"] == "COMPLETED", done["state"]["message"]
        assert len(mine()) == 1


@pytest.mark.e2e
def test_what_is_lost_is_seen_told_and_planned_around_by_itself(planned: Stack):
    """A server vanishes, a GPU dies, the power cap changes: look, event, automation, one replan.

    One event is sent for each; all in one moment, so they give one replan.
    """
    stack = planned
    cluster = open_manager(stack.settings, Store(stack.settings))
    assert isinstance(cluster, SimulatedCluster)
    servers = [s.server.id for s in cluster.state().servers if s.power is PowerState.ON]
    gone, hurt = servers[0], servers[-1]
    with stack.quiet():
        look_once(load(), stack.api)  # what there was before
        time.sleep(stack.settings.prefect.damper_s + 5)
        cluster.fault("server_vanishes", gone)
        cluster.fault("gpu_dies", f"{hurt}/0")
        with stack.configured("[allocation]\npower_cap_w = 1_000_000\n"):
            seen = "; ".join(look_once(load(), stack.api))
            told = (f"server {gone} is down", f"GPU {hurt}:0 is lost", "cap is now 1,000,000 W")
            for words in told:
                assert words in seen

            def mine() -> list[dict]:
                return [r for words in told for r in replans(stack, words.split(" is ")[0])]

            first = until(mine, "a replan by the events")[0]
            done = stack.api.wait(first["id"], timeout_s=300)
            assert done["state_type"] == "COMPLETED", done["state"]["message"]
            assert len(mine()) == 1
            assert look_once(load(), stack.api) == []
        cluster.fault("server_returns", gone)
        look_once(load(), stack.api)  # the cap going away is no event of the next test
    state = cluster.state()
    assert not any(slot.server == gone for status in state.jobs for slot in status.slots)


@pytest.mark.soak
def test_each_kind_of_event_alone_gives_one_replan(planned: Stack):
    stack, mark = planned, uuid.uuid4().hex
    with stack.quiet():
        for kind in KINDS:
            time.sleep(stack.settings.prefect.damper_s + 5)
            stack.api.call("POST", "/events", [event(kind, mark)])
            until(lambda kind=kind: replans(stack, f"{kind} of {mark}"), f"a replan by {kind}")
        time.sleep(stack.settings.prefect.damper_s + 5)
        counts = {kind: len(replans(stack, f"{kind} of {mark}")) for kind in KINDS}
    print(counts, flush=True)
    assert counts == dict.fromkeys(KINDS, 1)


@pytest.mark.e2e
def test_a_replan_is_asked_for_by_command_through_the_server(planned: Stack):
    stack = planned
    asked = ["replan", "--via-server", "--dry-run", "--reason", "from the shell", "--json"]
    with stack.quiet():
        done = subprocess.run(
            [sys.executable, "-m", "gogh_core.cli", *asked, "--max-moves", "3"],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["state"] == "completed"
    assert told["name"].startswith("dry run ")
    record = stack.api.call("GET", f"/flow_runs/{told['run']}")
    request = record["parameters"]["request"]
    assert (request["reason"], request["dry_run"], request["max_moves"]) == (
        "from the shell",
        True,
        3,
    )
    assert told["ui"] == f"{stack.ui}/runs/flow-run/{told['run']}"


@pytest.mark.e2e
def test_metrics_and_alert_rules_are_as_prometheus_wants_them(planned: Stack, tmp_path: Path):
    stack = planned
    address = stack.up["addresses"]["metrics"]

    def figures():
        text = httpx.get(address, timeout=30, trust_env=False).text
        return text if "gogh_plan_gap_ratio" in text else None

    text = until(figures, "figures of the first plan")
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr + text
    for name in ("gogh_cycles_total", "gogh_step_seconds", "gogh_planned_watts", "gogh_rows_total",
                 "gogh_quarantine_rows", "gogh_published_age_seconds"):  # fmt: skip
        assert f"\n{name}" in text, name
    (tmp_path / "gogh.rules").write_text(rules())
    shutil.copy(ALERTS, tmp_path / "alerts_test.yml")
    for command in (["check", "rules", "gogh.rules"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            ["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.e2e
def test_quiet_looks_leave_no_runs_and_no_write_of_the_server_failed(planned: Stack):
    """The last test of this stack: its whole life is in the log."""
    home = planned.settings.home.absolute()
    assert Daemon("watch", home).process() is not None
    found = planned.api.call("POST", "/deployments/filter", {})
    assert "watch" not in {deployment["name"] for deployment in found}
    assert "database is locked" not in Daemon("server", home).log.read_text()
