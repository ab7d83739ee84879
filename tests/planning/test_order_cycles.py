"""Orders through whole cycles of the embedded cluster, over several of its windows.

Telemetry, networks and solver are cut short as in `test_run`; store, problem, greedy plans,
journal, cluster and its clock are real.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gogh_core import estimation, telemetry
from gogh_core.allocation import greedy
from gogh_core.cluster import open_manager
from gogh_core.domain import Plan
from gogh_core.planning import CycleReport, Order, Request, give, lift, list_orders, run_cycle
from gogh_core.settings import GuardSettings, SimulationSettings
from gogh_core.store import Store
from tests.conftest import own_settings

HOST = "t4-01"


class World:
    """A cluster of three servers whose jobs sit on `HOST` after the first window."""

    def __init__(self, home: Any) -> None:
        # What needs approval has its own tests: here orders are carried out at once.
        self.settings = own_settings(
            home,
            simulation=SimulationSettings(servers=3, jobs_per_hour=40, seed=0),
            guards=GuardSettings(approve_stop_share=1.0),
        )
        self.store = Store(self.settings)
        self.store.migrate()
        self.manager: Any = open_manager(self.settings, self.store)

    def run(self, request: Request | None = None, **how: Any) -> CycleReport:
        options = {"manager": self.manager, "store": self.store} | how
        return run_cycle(self.settings, request=request, **options)

    def window(self) -> CycleReport:
        """The next window of the schedule."""
        self.manager.advance(self.settings.cycle.window_s)
        return self.run()

    def on_host(self, report: CycleReport) -> int:
        """How many placements the plan has there; the cluster has no other jobs there either."""
        assert report.plan is not None
        planned = {p.job for p in report.plan.placements for s in p.slots if s.server == HOST}
        has = {j.job.id for j in self.manager.state().jobs for s in j.slots if s.server == HOST}
        assert has <= planned
        return len(planned)

    def order(self, kind: Any, subject: str, **more: Any) -> Order:
        now = self.manager.now
        wish = Order(kind, subject, **{"begins_at": now, "who": "ann", "given_at": now} | more)
        return give(self.store, [wish], self.manager.state(), now)[0][0]

    def lift(self, kind: Any, subject: str) -> None:
        state, now = self.manager.state(), self.manager.now
        lift(self.store, kind, subject, who="bob", now=now, state=state)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("orders"))


@pytest.fixture
def world(home: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The cluster some windows on, with jobs on `HOST` and no order that stands."""
    monkeypatch.setattr("gogh_core.planning.steps.plan", lambda problem, **_: greedy(problem))
    report = telemetry.IngestReport(())
    monkeypatch.setattr(telemetry, "ingest", lambda *_, **__: report)
    monkeypatch.setattr(estimation, "load_estimator", lambda _: estimation.Estimator())
    for order in list_orders(home.store):
        if order.stands(home.manager.now):
            home.lift(order.kind, order.subject)
    for _ in range(4):
        if home.on_host(home.window()):
            return home
    raise AssertionError(f"no job runs on {HOST}")


def test_a_drained_rack_gets_nobody_back_until_the_drain_is_lifted(world: World) -> None:
    report = world.run(Request(reason="rack 3", drain=(HOST,), who="ann"))
    assert world.on_host(report) == 0
    (order,) = report.given
    assert (order.kind, order.subject, order.who, order.reason) == ("drain", HOST, "ann", "rack 3")
    assert [world.on_host(world.window()) for _ in range(3)] == [0, 0, 0]
    world.lift("drain", HOST)
    assert any(world.on_host(world.window()) for _ in range(3))


def test_the_plan_says_which_order_it_keeps(world: World) -> None:
    order = world.order("drain", HOST, reason="fan")
    report = world.window()
    assert report.plan is not None
    assert str(order) in report.plan.notes
    left = [*report.plan.moves, *report.plan.stops]
    gone = [one for one in left if any(slot.server == HOST for slot in one.source)]
    assert gone
    assert {one.reason for one in gone} == {str(order)}
    with world.store.read() as connection:
        rows = connection.execute(
            "SELECT notes FROM cycle_results WHERE cycle_id = ?", [report.cycle.id]
        ).fetchall()
    assert f"(order {order.id}): fan" in rows[0][0]


def test_an_order_ends_by_the_cluster_s_clock(world: World) -> None:
    window = timedelta(seconds=world.settings.cycle.window_s)
    world.order("drain", HOST, ends_at=world.manager.now + 2 * window)
    assert world.on_host(world.window()) == 0
    assert any(world.on_host(world.window()) for _ in range(3))


def test_a_window_to_come_empties_the_server_when_it_begins(world: World) -> None:
    window = timedelta(seconds=world.settings.cycle.window_s)
    begins = world.manager.now + 2 * window
    before = {j.job.id for j in world.manager.state().jobs for s in j.slots if s.server == HOST}
    order = world.order("drain", HOST, begins_at=begins)
    report = world.window()
    assert report.plan is not None
    seconds = (begins - world.manager.now).total_seconds()
    for placement in report.plan.placements:
        if placement.slots[0].server == HOST and placement.job not in before:
            status = world.manager.state().job(placement.job)
            left = status.job.total_steps - status.steps_done
            assert left / placement.throughput <= seconds
    assert world.on_host(world.window()) == 0
    assert order.in_force(world.manager.now)


def test_a_dry_run_plans_with_its_orders_and_records_none(world: World) -> None:
    before = list_orders(world.store)
    report = world.run(Request(reason="x", dry_run=True, drain=(HOST,)))
    assert report.plan is not None
    assert not _used(report.plan)
    assert report.given == ()
    assert list_orders(world.store) == before
    standing = world.order("drain", HOST)
    again = world.run(Request(reason="x", dry_run=True))
    assert again.plan is not None
    assert not _used(again.plan)
    assert str(standing) in again.notes


def _used(plan: Plan) -> bool:
    return any(slot.server == HOST for p in plan.placements for slot in p.slots)


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "where",
    [
        "run.take_turn",
        pytest.param("run.store_plan", marks=pytest.mark.e2e),
        pytest.param("emit.carry_out", marks=pytest.mark.e2e),
    ],
)
def test_a_run_killed_after_its_order_loses_nothing(
    world: World, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = Request(reason="rack 3", drain=(HOST,), who="ann")
    with monkeypatch.context() as broken:
        broken.setattr(f"gogh_core.planning.{where}", _killed)
        with pytest.raises(KeyboardInterrupt):
            world.run(wish, key=f"run {where}")
    standing = [o for o in list_orders(world.store) if o.stands(world.manager.now)]
    assert [(o.kind, o.subject, o.who) for o in standing] == [("drain", HOST, "ann")]
    world.run(wish, key=f"run {where}")
    assert [o for o in list_orders(world.store) if o.stands(world.manager.now)] == standing
    assert world.on_host(world.window()) == 0


def test_a_run_that_is_tried_again_does_not_give_its_order_again(world: World) -> None:
    wish = Request(reason="rack 3", drain=(HOST,), who="ann")
    world.run(wish, key="once")
    world.lift("drain", HOST)
    known = list_orders(world.store)
    again = world.run(wish, key="once")
    assert again.outcome == "done"
    assert list_orders(world.store) == known


def test_a_pinned_job_stays_window_after_window(world: World) -> None:
    status = next(j for j in world.manager.state().jobs if j.slots)
    world.order("pin", status.job.id)
    for _ in range(2):
        world.window()
        now = world.manager.state().job(status.job.id)
        assert now is None or not now.slots or now.slots == status.slots


def test_caps_and_quotas_hold_window_after_window(world: World) -> None:
    report = world.window()
    assert report.plan is not None
    drawn_w = report.plan.spent["power_w"]
    world.order("cap", "", power_w=0.8 * drawn_w)
    owner = next(j.job.owner for j in world.manager.state().jobs if j.slots)
    world.order("quota", owner, gpus=1)
    owners = {j.job.id: j.job.owner for j in world.manager.state().jobs}
    for _ in range(2):
        report = world.window()
        assert report.plan is not None
        assert report.plan.spent["power_w"] <= 0.8 * drawn_w * (1 + 1e-9)
        owners |= {j.job.id: j.job.owner for j in world.manager.state().jobs}
        held = [p for p in report.plan.placements if owners[p.job] == owner]
        assert sum(len(slot.gpus) for p in held for slot in p.slots) <= 1
