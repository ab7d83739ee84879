"""The flows as plain functions, without a server."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from flows import cadence, desk, replan, what_if
from flows.forms import ReplanForm, WhatIfForm
from flows.names import advice
from gogh_core.cluster.files import FilesManager
from gogh_core.domain import Cycle, JobState, PowerState
from gogh_core.errors import ClusterUnavailable, InvalidInput, UnsafeToPlan
from gogh_core.planning import CycleReport, Request
from gogh_core.store import Store, fetch
from tests.flows.examples import NOW, PLAN, STATE

WINDOW = datetime(2030, 1, 1, 10, 2, tzinfo=UTC)


class Cluster:
    """A manager that only counts how long it ran."""

    name, real = "simulated", False

    def __init__(self) -> None:
        self.ran_s = 0.0

    def clock(self):
        return NOW

    def advance(self, seconds):
        self.ran_s += seconds

    def state(self):
        return STATE


@pytest.fixture
def at_desk(settings, monkeypatch):
    cluster = Cluster()
    monkeypatch.setattr(desk, "load", lambda: settings)
    monkeypatch.setattr(desk, "open_manager", lambda settings, store: cluster)
    return desk.Desk()


def ends(monkeypatch, **report):
    made = CycleReport(**{"cycle": Cycle(NOW), "outcome": "emitted", "request": Request()} | report)
    monkeypatch.setattr(cadence, "run_cycle", lambda *args, **kwargs: made)


def claim(store: Store, key: str) -> None:
    row = {"token": "t", "host": "h", "boot": "b", "pid": 1, "process_started": 0.0}
    with store.write() as connection:
        fetch(connection, "planning_insert_cycle", cycle_id="c", window_start=NOW, revision=0,
              reason="schedule", state="emitted", begun_at=NOW)  # fmt: skip
        fetch(connection, "planning_insert_claim", cycle_id="c", request_key=key, request="{}",
              heartbeat_at=NOW, **row)  # fmt: skip


def test_the_first_window_is_planned_as_the_embedded_cluster_stands(at_desk):
    assert cadence.scheduled_key(at_desk, WINDOW) == "schedule:20300101T100000Z-0"
    assert at_desk.manager.ran_s == 0


def test_each_scheduled_window_lets_the_embedded_cluster_run_for_one_window_once(at_desk):
    claim(at_desk.store, "schedule:20300101T095500Z-0")
    key = cadence.scheduled_key(at_desk, WINDOW)
    assert at_desk.manager.ran_s == at_desk.settings.cycle.window_s
    with at_desk.store.write() as connection:
        fetch(connection, "planning_take_over", cycle_id="c", token="t", host="h", boot="b", pid=1,
              process_started=0.0, heartbeat_at=NOW)  # fmt: skip
        connection.execute("UPDATE cycle_claims SET request_key = ?", [key])
    assert cadence.scheduled_key(at_desk, WINDOW) == key
    assert at_desk.manager.ran_s == at_desk.settings.cycle.window_s, "not a second time"


def test_a_real_cluster_runs_by_itself(at_desk):
    claim(at_desk.store, "schedule:20300101T095500Z-0")
    at_desk.manager = FilesManager(at_desk.settings)
    assert cadence.scheduled_key(at_desk, WINDOW) == "schedule:20300101T100000Z-0"


@pytest.mark.parametrize("outcome", ["done", "busy", "superseded"])
def test_what_another_run_did_is_not_done_again(at_desk, monkeypatch, outcome):
    ends(monkeypatch, outcome=outcome, detail="the cycle is emitted")
    state = cadence.plan_window(at_desk, Request(), key="k")
    assert state.is_completed()
    assert state.message == "Nothing to do: the cycle is emitted"


def test_a_plan_that_was_sent_completes_the_run(at_desk, monkeypatch):
    ends(monkeypatch, plan=PLAN, detail="3 confirmed", degraded=("no new data: x",))
    state = cadence.plan_window(at_desk, Request(), key="k")
    assert state.is_completed()
    assert "gap 0.4 % · ⚠ no new data: emitted; 3 confirmed" in state.message


def test_a_cluster_that_fell_silent_fails_the_run_with_what_to_do(at_desk, monkeypatch):
    ends(monkeypatch, outcome="interrupted", plan=PLAN, detail="no answer")
    state = cadence.plan_window(at_desk, Request(), key="k")
    assert state.is_failed()
    assert state.message.startswith("To do: ")


def test_wishes_that_no_plan_keeps_fail_the_run_with_what_to_do(at_desk, monkeypatch):
    from dataclasses import replace as other

    plan = other(PLAN, status="infeasible", notes=("j1 is pinned to drained s1",))
    ends(monkeypatch, outcome="rejected", plan=plan)
    state = cadence.plan_window(at_desk, Request(), key="k")
    assert state.is_failed()
    assert "j1 is pinned to drained s1" in state.message


def test_an_error_of_ours_becomes_a_failed_run_whose_first_line_says_what_to_do(
    at_desk, monkeypatch
):
    error = UnsafeToPlan("data is 2 h old", todo="bring a source back")

    def unsafe(*args, **kwargs):
        raise error

    monkeypatch.setattr(cadence, "run_cycle", unsafe)
    state = replan.replan.fn(ReplanForm())
    assert state.is_failed()
    assert state.message == advice(error)
    assert state.message.startswith("To do: bring a source back")


def test_only_the_cluster_and_sources_are_tried_again():
    from prefect.states import Failed

    def again(error):
        return desk._may_come_back(None, None, Failed(data=error))

    assert again(ClusterUnavailable("x"))
    assert not again(UnsafeToPlan("x"))
    assert not again(ValueError("x"))


def test_what_if_changes_the_cluster_and_nothing_else(settings):
    form = WhatIfForm(
        add_servers=[{"gpu_type": "A100", "gpus": 8, "count": 2}],
        lose_servers=["s2"],
        add_jobs=[{"like": "stays", "count": 3, "required_throughput": 2.0}],
    )
    other = what_if.changed(STATE, form, settings)
    assert [s.power for s in other.servers] == [
        PowerState.ON,
        PowerState.DOWN,
        PowerState.OFF,
        PowerState.OFF,
    ]
    assert len({s.server.id for s in other.servers}) == 4
    new = other.jobs[len(STATE.jobs) :]
    assert [j.state for j in new] == [JobState.WAITING] * 3
    assert {j.job.required_throughput for j in new} == {2.0}
    assert what_if.changed(STATE, WhatIfForm(), settings) == STATE


@pytest.mark.parametrize(
    "wrong",
    [
        {"lose_servers": ["s9"]},
        {"add_jobs": [{"like": "nobody"}]},
        {"add_servers": [{"gpu_type": "abacus"}]},
    ],
)
def test_what_if_refuses_names_that_are_not_there(settings, wrong):
    with pytest.raises(InvalidInput):
        what_if.changed(STATE, WhatIfForm(**wrong), settings)
