"""One cycle from its turn to its end, on one embedded cluster that all tests here share.

Telemetry, networks and solver are cut short (they have their own tests, the demo runs all of it);
store, problem, greedy plans, journal and cluster are real.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from gogh_core import estimation, telemetry
from gogh_core.allocation import Problem, greedy, load_problem, verify
from gogh_core.cluster import ClusterManager, ExecutionReport, decide, executions, open_manager
from gogh_core.cluster.actions import Action, Kind
from gogh_core.cluster.journal import ActionRecord
from gogh_core.domain import Plan
from gogh_core.errors import (
    ClusterUnavailable,
    InvalidInput,
    SolverFailed,
    SourceUnavailable,
    UnsafeToPlan,
)
from gogh_core.planning import CycleReport, Request, lift, list_cycles, run_cycle, running_files
from gogh_core.planning.budget import Budget, OverBudget
from gogh_core.settings import CycleSettings, Settings, SimulationSettings, load
from gogh_core.store import Store, fetch

BY_HAND = Request(reason="by hand")


@dataclass
class World:
    settings: Settings
    store: Store
    manager: Any

    def run(self, request: Request | None = None, **how: Any) -> CycleReport:
        options = {"manager": self.manager, "store": self.store, **how}
        settings = options.pop("settings", self.settings)
        return run_cycle(settings, request=request, **options)

    def count(self, table: str) -> int:
        with self.store.read() as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])

    def state_of(self, report: CycleReport) -> str:
        rows = {row["cycle_id"]: row["state"] for row in list_cycles(self.store, rows=500)}
        return str(rows[report.cycle.id])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> World:
    settings = load(
        home=tmp_path_factory.mktemp("run"),
        simulation=SimulationSettings(servers=3, jobs_per_hour=10),
    )
    store = Store(settings)
    store.migrate()
    return World(settings, store, open_manager(settings, store))


@pytest.fixture
def world(home: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A fresh window; nothing new comes from telemetry, and plans are made by the greedy rule."""
    monkeypatch.setattr("gogh_core.planning.steps.plan", lambda problem, **_: greedy(problem))
    report = telemetry.IngestReport(())
    monkeypatch.setattr(telemetry, "ingest", lambda *_, **__: report)
    monkeypatch.setattr(estimation, "load_estimator", lambda _: estimation.Estimator())
    home.manager.advance(home.settings.cycle.window_s)
    return home


def test_a_cycle_is_planned_and_emitted_once(world: World) -> None:
    first = world.run()
    assert first.outcome == "emitted"
    assert first.plan is not None
    assert first.plan.placements
    assert first.plan.id.startswith(first.cycle.id)
    before = (world.count("plans"), world.count("journal"), world.count("placements"))
    again = world.run()
    assert (again.outcome, again.plan) == ("done", first.plan)
    assert (world.count("plans"), world.count("journal"), world.count("placements")) == before
    late = world.run(cycle=first.cycle)
    assert late.plan == first.plan


def test_what_is_planned_comes_true_and_is_stored_whole(world: World) -> None:
    report = world.run()
    plan = report.plan
    assert plan is not None
    state = world.manager.state()
    placed = {status.job.id for status in state.jobs if status.slots}
    assert placed == {placement.job for placement in plan.placements}
    with world.store.snapshot() as connection:
        rows = connection.execute(
            "SELECT job_id FROM placements WHERE plan_id = ?", [plan.id]
        ).fetchall()
        waits = connection.execute(
            "SELECT job_id FROM waiting WHERE plan_id = ?", [plan.id]
        ).fetchall()
        found = connection.execute("SELECT running, power_w FROM cycle_results").fetchall()
        estimates = connection.execute(
            "SELECT count(*) FROM estimates WHERE cycle_id = ?", [report.cycle.id]
        ).fetchall()
    assert {row[0] for row in rows} == placed
    assert {row[0] for row in waits} == {waiting.job for waiting in plan.waiting}
    assert (len(placed), plan.spent["power_w"]) in found
    assert estimates[0][0] > 0


def test_queue_and_cluster_are_shown_as_they_are_after_the_plan(world: World) -> None:
    report = world.run()
    state = world.manager.state()
    with world.store.snapshot() as connection:
        queue = connection.execute("SELECT job_id, reason FROM queue_now").fetchall()
        busy = connection.execute(
            "SELECT DISTINCT unnest(jobs) FROM gpus_now WHERE len(jobs) > 0"
        ).fetchall()
        servers = connection.execute("SELECT server_id, power FROM servers").fetchall()
    assert report.plan is not None
    assert {job for job, _ in queue} == {s.job.id for s in state.jobs if not s.slots}
    assert dict(queue) == {waiting.job: waiting.reason for waiting in report.plan.waiting}
    assert {job for (job,) in busy} == {s.job.id for s in state.jobs if s.slots}
    assert dict(servers) == {s.server.id: str(s.power) for s in state.servers}


def test_the_promise_and_the_estimate_are_kept_beside_what_was_planned_with(world: World) -> None:
    report = world.run()
    promised = {s.job.id: s.job.required_throughput for s in world.manager.state().jobs}
    with world.store.snapshot() as connection:
        rows = connection.execute(
            "SELECT job_id, required_throughput, throughput, expected_low, expected, expected_high "
            "FROM placements WHERE plan_id = ?",
            [report.plan.id],
        ).fetchall()
    assert rows
    for job, kept, counted, low, mean, high in rows:
        assert counted <= mean
        assert low <= mean <= high
        assert kept == report.expected[job].promised >= promised[job]


def test_the_files_of_the_running_plan_verify_and_are_found(world: World) -> None:
    report = world.run()
    problem, plan = running_files(world.settings, world.store)
    assert report.plan is not None
    assert report.plan.id in str(problem)
    import json

    stored = Plan.from_dict(json.loads(plan.read_text(encoding="utf-8")))
    assert verify(load_problem(problem), stored) == []


def test_a_dry_run_shows_the_difference_and_changes_nothing(world: World) -> None:
    world.run()
    tables = ("cycles", "cycle_claims", "plans", "estimates", "journal")
    before = [world.count(name) for name in tables]
    state = world.manager.state()
    server = next(s.slots[0].server for s in state.jobs if s.slots)
    report = world.run(Request(reason="x", dry_run=True, drain=(server,)))
    assert report.outcome == "dry_run"
    assert report.diff is not None
    lines = report.diff.lines()
    assert lines[0].startswith("draw ")
    assert report.before is not None
    assert [world.count(name) for name in tables] == before
    assert world.manager.state() == state


def test_replans_take_the_next_revision_of_what_is_left(world: World) -> None:
    scheduled = world.run()
    world.manager.advance(200)
    by_hand = world.run(BY_HAND)
    assert by_hand.cycle.revision == scheduled.cycle.revision + 1
    assert by_hand.cycle.window_start == scheduled.cycle.window_start
    assert by_hand.problem is not None
    assert by_hand.problem.window_s == pytest.approx(100.0)
    world.manager.advance(100)


@pytest.mark.e2e
def test_missed_windows_are_visible(world: World) -> None:
    world.run()
    world.manager.advance(3 * world.settings.cycle.window_s)
    before = len(list_cycles(world.store, missed=True, rows=500))
    world.run()
    assert len(list_cycles(world.store, missed=True, rows=500)) == before + 2


def test_without_the_cluster_nothing_is_planned(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> None:
        raise ClusterUnavailable("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(world.manager, "state", silent)
        with pytest.raises(UnsafeToPlan, match="no answer"):
            world.run()
    assert list_cycles(world.store)[0]["state"] == "failed"
    assert world.run().outcome == "emitted"


def test_a_state_that_is_too_old_is_not_planned_with(world: World) -> None:
    late = world.manager.now + timedelta(hours=2)
    with pytest.raises(UnsafeToPlan, match="state is 7200 s old"):
        world.run(Request(reason="x", dry_run=True), clock=lambda: late)


def test_a_source_that_is_down_does_not_stop_the_cycle(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = telemetry.SourceReport("prometheus", unavailable="connection refused")
    bad = telemetry.SourceReport("gpu", refused=("half of it is garbage",))
    report = telemetry.IngestReport((source, bad))
    monkeypatch.setattr(telemetry, "ingest", lambda *_, **__: report)
    made = world.run()
    assert made.outcome == "emitted"
    assert "prometheus unavailable: connection refused" in made.degraded
    assert "gpu refused: half of it is garbage" in made.degraded
    assert "⚠ prometheus unavailable · ⚠ gpu refused" in made.name


@pytest.mark.e2e
def test_ingest_that_fails_or_hangs_is_gone_on_without(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise SourceUnavailable("the spool is gone")

    monkeypatch.setattr(telemetry, "ingest", fails)
    assert "the spool is gone" in world.run().degraded[0]
    release = threading.Event()
    monkeypatch.setattr(telemetry, "ingest", lambda *_, **__: release.wait(60))
    cycle = CycleSettings(step_budget_s=1.0)
    short = world.settings.model_copy(update={"cycle": cycle})
    report = world.run(BY_HAND, settings=short)
    release.set()
    assert report.outcome == "emitted"
    assert "longer than its 1 s" in report.degraded[0]


def test_old_telemetry_with_running_jobs_is_unsafe(world: World) -> None:
    now = world.manager.now
    insert = "INSERT INTO job_progress (ts, job_id, steps) VALUES (?, 'x', 1)"
    with world.store.write() as connection:
        connection.execute(insert, [now - timedelta(seconds=1000)])
    assert "telemetry is 1000 s old" in world.run().degraded[0]
    world.manager.advance(1200)
    with pytest.raises(UnsafeToPlan, match="the newest telemetry is 2200 s old"):
        world.run()
    with world.store.write() as connection:
        connection.execute("DELETE FROM job_progress")


@pytest.mark.e2e
def test_a_failed_retraining_leaves_the_serving_network(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise InvalidInput("the loss is not a number")

    monkeypatch.setattr(estimation, "retrain", fails)
    fresh = telemetry.IngestReport((), observations=3)
    monkeypatch.setattr(telemetry, "ingest", lambda *_, **__: fresh)
    report = world.run()
    assert report.outcome == "emitted"
    assert any("the loss is not a number" in line for line in report.degraded)


def test_a_solver_that_fails_leaves_a_greedy_plan(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> Plan:
        raise SolverFailed("glpsol died")

    monkeypatch.setattr("gogh_core.planning.steps.plan", fails)
    report = world.run()
    assert report.outcome == "emitted"
    assert report.plan is not None
    assert report.plan.status == "greedy"
    assert any("glpsol died" in line for line in report.degraded)


def test_a_plan_that_is_not_wholly_carried_out_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def skipped(plan: Plan, *_: object, **__: object) -> ExecutionReport:
        lost = ActionRecord(Action("move:a", Kind.MOVE, 1), "skipped", "GPU 0 of s1 is taken by b")
        over = ActionRecord(Action("move:c", Kind.MOVE, 1), "skipped", "job c has ended: finished")
        return ExecutionReport(plan.id, "c", "done", "", (lost, over), (), 0.1)

    monkeypatch.setattr("gogh_core.planning.emit.carry_out", skipped)
    report = world.run()
    said = "1 of 2 actions were not carried out: move:a, GPU 0 of s1 is taken by b"
    assert report.degraded[-1] == said


def test_a_solver_out_of_time_gives_its_best_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(problem: Problem, **_: object) -> Plan:
        return replace(greedy(problem), status="time_limit", gap=0.07)

    monkeypatch.setattr("gogh_core.planning.steps.plan", late)
    report = world.run()
    assert report.outcome == "emitted"
    assert any("the solver ran out of time: gap 7.00%" in line for line in report.degraded)


def test_wishes_that_cannot_be_kept_are_rejected_with_the_reason(world: World) -> None:
    world.run()
    sent = world.count("journal")
    report = world.run(Request(reason="x", power_cap_w=1.0))
    lift(world.store, "cap", "", who="ada", now=world.manager.now, state=world.manager.state())
    assert report.outcome == "rejected"
    assert report.plan is not None
    assert report.plan.status == "infeasible"
    assert world.count("journal") == sent


def test_a_pin_and_a_drain_that_exclude_each_other_are_refused(world: World) -> None:
    world.run()
    running = next(status for status in world.manager.state().jobs if status.slots)
    before = (world.count("orders"), world.count("cycles"))
    wish = Request(reason="x", pin=(running.job.id,), drain=(running.slots[0].server,))
    with pytest.raises(InvalidInput, match="is drained by this request; order one of the two"):
        world.run(wish)
    assert (world.count("orders"), world.count("cycles")) == before


def test_a_plan_waits_for_a_person(world: World) -> None:
    wish = Request(reason="careful", wait_for_approval=True)
    report = world.run(wish)
    assert (report.outcome, world.state_of(report)) == ("waiting", "waiting")
    assert report.plan is not None
    assert world.run(wish, cycle=report.cycle).outcome == "waiting"
    now = world.manager.now
    decide(world.store, report.plan.id, approve=True, who="ada", why="looks good", now=now)
    again = world.run(wish, cycle=report.cycle)
    assert (again.outcome, again.plan) == ("emitted", report.plan)
    assert world.run(wish, cycle=report.cycle).outcome == "done"


@pytest.mark.e2e
def test_a_plan_that_a_person_rejects_is_not_carried_out(world: World) -> None:
    wish = Request(reason="careful", wait_for_approval=True)
    report = world.run(wish)
    assert report.plan is not None
    now = world.manager.now
    decide(world.store, report.plan.id, approve=False, who="ada", why="not now", now=now)
    again = world.run(wish, cycle=report.cycle)
    assert again.outcome == "rejected"
    assert "not now" in again.detail


@pytest.mark.e2e
def test_a_run_that_died_before_emitting_is_gone_on_with(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr("gogh_core.planning.emit.carry_out", dies)
        with pytest.raises(KeyboardInterrupt):
            world.run()
    plans = world.count("plans")
    report = world.run()
    assert report.outcome == "emitted"
    assert world.count("plans") == plans


@pytest.mark.e2e
def test_a_newer_request_wins_over_one_that_is_being_planned(world: World) -> None:
    newer: list[CycleReport] = []

    def ask() -> None:
        newer.append(world.run(Request(reason="newer")))

    thread = threading.Thread(target=ask)

    def tell(step: str, seconds: float) -> None:
        if step == "estimate" and seconds == 0 and not thread.is_alive():
            thread.start()
            while list_cycles(world.store)[0]["reason"] != "newer":
                pass

    older = world.run(report=tell)
    thread.join(60)
    assert (older.outcome, world.state_of(older)) == ("superseded", "superseded")
    assert newer[0].outcome == "emitted"
    done = {row["cycle_id"] for row in executions(world.store, limit=500)}
    assert older.cycle.id not in done
    assert newer[0].cycle.id in done


def test_steps_can_be_run_as_tasks_and_are_counted(world: World) -> None:
    seen = []

    def around(name: str, work: Any) -> Any:
        seen.append(name)
        return work()

    report = world.run(around=around)
    expected = ["state", "ingest", "retrain", "estimate", "allocate", "store", "emit", "publish"]
    assert seen == expected
    assert list(report.seconds) == expected
    raw = report.to_dict()
    assert raw["name"] == report.name
    assert set(raw["expected"]) == {placement.job for placement in report.plan.placements}


@pytest.mark.e2e
def test_every_cycle_has_one_plan_at_most(world: World) -> None:
    """Over all that the tests above did."""
    world.run()
    with world.store.read() as connection:
        rows = connection.execute(
            "SELECT cycle_id, count(*) FROM plans GROUP BY cycle_id HAVING count(*) > 1"
        ).fetchall()
        last = fetch(connection, "planning_last_plan").to_pylist()
    assert rows == []
    assert last[0]["cycle_id"] == list_cycles(world.store)[0]["cycle_id"]


def test_a_budget_is_kept() -> None:
    budget = Budget(60.0, 0.05)
    with pytest.raises(OverBudget, match="longer than its 0 s"):
        budget.within("sleep", lambda: threading.Event().wait(5))
    assert budget.within("add", lambda: 1 + 1) == 2
    with pytest.raises(ZeroDivisionError):
        budget.within("divide", lambda: 1 // 0)
    spent = Budget(0.0, 10.0)
    with pytest.raises(OverBudget, match="no time was left"):
        spent.within("late", lambda: None)


def test_the_embedded_cluster_is_a_manager(home: World) -> None:
    assert isinstance(home.manager, ClusterManager)


def test_a_job_that_was_moved_as_often_as_a_day_allows_stays(world: World) -> None:
    world.run()
    once = world.settings.guards.model_copy(
        update={"max_disruptions_per_day": 1, "approve_stop_share": 1.0}
    )
    settings = world.settings.model_copy(update={"guards": once})
    state = world.manager.state()
    server = next(s.slots[0].server for s in state.jobs if s.slots and s.job.movable)
    report = world.run(Request(reason="heat", drain=(server,)), settings=settings)
    assert report.plan is not None
    moved = {move.job for move in report.plan.moves}
    stopped = {stop.job for stop in report.plan.stops}
    assert moved | stopped
    again = world.run(Request(reason="look"), settings=settings)
    assert again.problem is not None
    assert {job.id for job in again.problem.jobs if job.pinned and job.id in moved} == moved
