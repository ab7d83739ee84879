"""The stack as people use it: every deployment, events, metrics, twice up."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from gogh_core.cli.prefect_server import Daemon
from gogh_core.cli.stack import bring_up
from gogh_core.watch import rules
from tests.e2e.stack import Stack, until

pytestmark = pytest.mark.e2e

ALERTS = Path(__file__).resolve().parents[2] / "flows" / "alerts_test.yml"
BY_HAND = ["ingest", "validate", "retrain-p2", "estimate", "allocate", "emit", "maintenance"]


@pytest.fixture(scope="module")
def planned(stack: Stack) -> Stack:
    """The stack with at least one plan in it."""
    run = stack.run("reallocation")
    assert run["state_type"] == "COMPLETED", run["state"]["message"]
    return stack


def test_up_twice_starts_nothing_twice(stack: Stack):
    home = stack.settings.home.absolute()
    before = {name: Daemon(name, home).process() for name in ("server", "worker-1", "metrics")}
    again = bring_up(stack.settings, say=lambda line: None)
    assert again["addresses"]["ui"] == stack.ui
    assert {name: Daemon(name, home).process() for name in before} == before


def test_every_step_runs_alone(planned: Stack):
    stack = planned
    asked = {name: stack.api.run(f"{name}/{name}", {})["id"] for name in BY_HAND}
    grown = {"changes": {"add_servers": [{"gpu_type": "v100", "gpus": 4, "count": 2}]}}
    asked["what-if"] = stack.api.run("what-if/what-if", grown)["id"]
    runs = {name: stack.api.wait(ident, timeout_s=420) for name, ident in asked.items()}
    told = {name: (run["state_type"], run["state"]["message"]) for name, run in runs.items()}
    assert {state for state, _ in told.values()} == {"COMPLETED"}, told
    assert runs["what-if"]["name"].startswith("what if · ")
    assert "gogh-what-if" in stack.artifacts(asked["what-if"])
    assert "gogh-estimates" in stack.artifacts(asked["estimate"])


def test_a_window_that_was_planned_is_left_alone(stack: Stack):
    with stack.quiet():
        # A run that the scheduler made just before the pause may still come in between, and wins.
        for year in (2031, 2032, 2033):
            moment = {"window": f"{year}-01-01T00:00:30+00:00"}
            first, second = stack.run("reallocation", moment), stack.run("reallocation", moment)
            if "superseded" not in first["state"]["message"]:
                break
    assert first["name"].startswith("plan "), first["state"]["message"]
    assert second["state_type"] == "COMPLETED"
    assert second["state"]["message"].startswith("Nothing to do")


def test_a_failed_run_says_first_what_to_do(stack: Stack):
    wrong = {"request": {"reason": "mistake", "drain": ["no-such-server"]}}
    with stack.quiet():
        run = stack.run("replan", wrong)
    assert run["state_type"] == "FAILED"
    assert run["state"]["message"].startswith("To do: ")
    assert "no-such-server" in run["state"]["message"]


def test_wrong_values_are_refused_by_the_api_too(stack: Stack):
    deployment = stack.api.deployment("replan/replan")
    answer = httpx.post(
        f"{stack.api.url}/deployments/{deployment['id']}/create_flow_run",
        json={"parameters": {"request": {"gap": 7}}, "enforce_parameter_schema": True},
        timeout=60,
        trust_env=False,
    )
    assert answer.status_code in (409, 422), answer.text


def test_a_storm_of_events_gives_one_replan(planned: Stack):
    stack = planned

    def event(number: int) -> dict:
        return {
            "id": str(uuid.uuid4()),
            "event": "gogh.event.server_lost",
            "occurred": datetime.now(UTC).isoformat(),
            "resource": {"prefect.resource.id": f"gogh.s{number}"},
            "payload": {"reason": f"server s{number} is down"},
        }

    def replans():
        wanted = "event: server s"
        return [r for r in stack.runs("replan") if wanted in json.dumps(r["parameters"])]

    with stack.quiet():
        time.sleep(stack.settings.prefect.damper_s + 5)  # an event before this one may be damped
        stack.api.call("POST", "/events", [event(number) for number in range(8)])
        first = until(replans, "a replan by the events")[0]
        done = stack.api.wait(first["id"], timeout_s=300)
        assert done["state_type"] == "COMPLETED", done["state"]["message"]
        assert len(replans()) == 1


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
