"""What the plan wanted, what the cluster has, and what advice would have saved; the commands."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from gogh_core.cli import app
from gogh_core.cluster import advice, carry_out, differences, executions, stored_plan
from gogh_core.domain import JobState, Plan
from gogh_core.errors import InvalidInput
from gogh_core.settings import ClusterSettings, GuardSettings, Settings
from gogh_core.store import Store
from gogh_core.telemetry import measure, record_state
from tests.cluster.fake import NOW, Fake, at, plan, running, server, waiting
from tests.cluster.kept import keep


def carry(a_plan: Plan, fake: Fake, settings: Settings, store: Store):
    return carry_out(
        a_plan,
        fake.state(),
        manager=fake,
        store=store,
        settings=settings,
        cycle_id="c1",
        now=NOW,
        sleep=lambda _: None,
    )


def test_differences_say_what_where_and_since_when() -> None:
    wanted = plan(
        places={"a": at("s1", 0), "b": at("s1", 1), "c": at("s2", 0), "over": at("s2", 3)},
        stops=[("d", at("s2", 1))],
        servers={"s1": "off"},
    )
    later = NOW + timedelta(seconds=60)
    fake = Fake.of(
        [server("s1"), server("s2")],
        [
            running("a", at("s1", 0)),
            running("b", at("s2", 2), since=later),
            waiting("c"),
            running("d", at("s2", 1)),
            replace(running("over", ()), state=JobState.FINISHED),
            running("new", at("s1", 3)),
        ],
    )
    found = {d.subject: d for d in differences(wanted, fake.state(), (), NOW, by_index=True)}
    assert set(found) == {"job b", "job c", "job d", "server s1"}
    assert (found["job b"].wanted, found["job b"].has) == ("s1[1]", "s2[2]")
    assert found["job b"].since == later
    assert (found["job c"].has, found["job c"].since) == ("waiting", NOW)
    assert found["job d"].wanted == "waiting"
    assert (found["server s1"].wanted, found["server s1"].has) == ("off", "on")


def test_the_reason_of_a_difference_comes_from_the_journal(settings, store) -> None:
    fake = Fake.of([server("s1"), server("s2")], [running("a", at("s1", 0))])
    wanted = plan(moves=[("a", at("s1", 0), at("s2", 0))])
    still = settings.model_copy(update={"guards": GuardSettings(max_moves=0)})
    report = carry(wanted, fake, still, store)
    found = differences(wanted, fake.state(), report.records, NOW, by_index=True)
    assert len(found) == 1
    assert "guard: 0 moves and stops per cycle" in found[0].why


def test_a_plan_is_found_by_the_beginning_of_its_name(store) -> None:
    for revision, name in enumerate(("abc1", "abc2", "xyz")):
        keep(store, plan(name), revision=revision)
    assert stored_plan(store, "x")[0].id == "xyz"
    with pytest.raises(InvalidInput, match="several plans"):
        stored_plan(store, "abc")
    with pytest.raises(InvalidInput, match="is no plan"):
        stored_plan(store, "nothing")


def test_advice_says_what_would_have_been_saved(settings, store) -> None:
    """Two GPUs drew 250 W each beside a server of 300 W; the plan would have needed 500 W."""
    fake = Fake.of([server("s1", 2)], [waiting("a")], real=True)
    wanted = plan(places={"a": at("s1", 0)})
    keep(store, wanted, power_w=500.0)
    cycle = {
        "cycle_id": "c1",
        "window_start": NOW,
        "revision": 0,
        "reason": "schedule",
        "state": "emitted",
        "detail": None,
        "degraded": None,
        "seconds": None,
        "begun_at": NOW,
        "ended_at": NOW,
    }
    store.append("cycles", pa.Table.from_pylist([cycle]))
    assert carry(wanted, fake, settings, store).state == "advised"
    assert advice(store)[0]["saved_j"] is None
    samples = [
        {
            "ts": NOW + timedelta(seconds=second),
            "server_id": "s1",
            "gpu_index": gpu,
            "power_w": 200.0 + 100.0 * (second % 2),
        }
        for second in range(1, 301)
        for gpu in range(2)
    ]
    store.append("gpu_samples", pa.Table.from_pylist(samples))
    state = replace(fake.state(), at=NOW)
    record_state(store, settings, state, now=NOW)
    with store.write() as connection:
        measure(connection, settings, now=NOW + timedelta(seconds=settings.cycle.window_s))
    row = advice(store)[0]
    assert row["measured_w"] == pytest.approx(800.0)
    assert row["saved_w"] == pytest.approx(300.0)
    assert row["saved_j"] == pytest.approx(300.0 * settings.cycle.window_s)


class TestCommands:
    """The commands, on a store of their own."""

    @pytest.fixture(autouse=True)
    def home(self, settings, monkeypatch) -> None:
        monkeypatch.setenv("GOGH_HOME", str(settings.home))

    def run(self, *arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    def test_pause_and_resume(self, settings, store) -> None:
        assert json.loads(self.run("pause", "--why", "fire", "--json"))["why"] == "fire"
        fake = Fake.of([server("s1")], [waiting("a")])
        assert carry(plan(places={"a": at("s1", 0)}), fake, settings, store).state == "paused"
        assert "actions go on" in self.run("resume")
        assert "nothing was paused" in self.run("resume")

    def test_emit_and_status_speak_of_the_embedded_cluster(self, settings, store) -> None:
        from gogh_core.cluster import open_manager

        simulated = open_manager(settings, store)
        simulated.advance(1800)
        state = simulated.state()
        job = next(s for s in state.jobs if s.state is JobState.WAITING and 1 in s.job.gpu_counts)
        free = next(s for s in state.servers if s.power == "on")
        wanted = plan("p9", places={job.job.id: at(free.server.id, 0)})
        keep(store, wanted)
        emitted = json.loads(self.run("emit", "--json"))
        assert emitted["state"] == "done"
        assert emitted["actions"][0]["state"] == "confirmed"
        status = json.loads(self.run("status", "--json"))
        assert status["plan"] == "p9"
        assert status["differences"] == []
        assert "differs   nowhere" in self.run("status")
        assert "p9" in self.run("plans")

    def test_without_a_database_it_says_what_to_do(self, settings, capsys) -> None:
        result = CliRunner().invoke(app, ["status"])
        assert "there is no database yet" in str(result.exception)


def test_what_is_advised_may_be_carried_out_later(settings, store) -> None:
    fake = Fake.of([server("s1")], [waiting("a")], real=True)
    wanted = plan(places={"a": at("s1", 0)})
    carry(wanted, fake, settings, store)
    assert executions(store)[0]["state"] == "advised"
    bold = settings.model_copy(update={"cluster": ClusterSettings(mode="act")})
    assert carry(wanted, fake, bold, store).state == "done"
