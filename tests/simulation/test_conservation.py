"""Nothing is lost or counted twice: work, energy, GPU-seconds, promises, whatever a policy does.

The reference is brute force: `rates_of` goes through all jobs and servers, also in the middle
between two events, where nothing may have changed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from gogh_core.domain import Job, PowerState, Server, Slot
from gogh_core.errors import ActionFailed
from gogh_core.simulation import actions
from gogh_core.simulation.arrivals import Demand, ListedSource
from gogh_core.simulation.board import Board
from gogh_core.simulation.classes import CLASSES
from gogh_core.simulation.engine import Run, Segment, carry_out
from gogh_core.simulation.figures import figures_of
from gogh_core.simulation.mirror import Mirror
from gogh_core.simulation.rates import Tick, rates_of
from gogh_core.simulation.world import World
from tests.simulation.random_worlds import HORIZON_S, START, TRUTH, Case, cases
from tests.simulation.reach import HIDDEN, reached

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
SAMPLES = 4


class Checked(World):
    """A world that is integrated by brute force beside its own bookkeeping."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.sums: Counter[str] = Counter()
        self.gross: defaultdict[str, float] = defaultdict(float)
        self.served: defaultdict[str, float] = defaultdict(float)
        self.mirror: Mirror | None = None

    def step(self, until_s: float) -> None:
        self.settle()
        self.check_seats()
        if self.mirror is not None:
            self.mirror.update()
            same_board(self.mirror.board, self)
        begin_s, part_s = self.now_s, (until_s - self.now_s) / SAMPLES
        for number in range(SAMPLES):
            self.now_s = begin_s + (number + 0.5) * part_s
            self.add(rates_of(self), part_s)
        self.now_s = begin_s
        super().step(until_s)

    def add(self, tick: Tick, span_s: float) -> None:
        if span_s > 1e-3:
            assert tick.watts == pytest.approx(self.floor.watts)
            assert (tick.busy, tick.on) == (self.floor.busy, self.floor.on)
            assert tick.busy <= tick.on
        self.sums["energy_j"] += tick.watts * span_s
        self.sums["gpu_energy_j"] += tick.gpu_watts * span_s
        self.sums["busy_gpu_s"] += tick.busy * span_s
        self.sums["on_gpu_s"] += tick.on * span_s
        for record in self.jobs.values():
            if not record.active:
                continue
            rate, required = sum(tick.rates.get(record.id, ())), self.required(record)
            self.sums["running_s" if record.places else "waiting_s"] += span_s
            self.gross[record.id] += rate * span_s
            self.served[record.id] += min(rate, required) * span_s
            if required > 0:
                self.sums["promised_s"] += span_s
                self.sums["attained_s"] += span_s * (rate >= 0.95 * required)

    def check_seats(self) -> None:
        users: Counter[tuple[str, int]] = Counter()
        for record in self.jobs.values():
            own = [(place.server, gpu) for place in record.places for gpu in place.gpus]
            assert len(own) == len(set(own))
            users.update(own)
        assert max(users.values(), default=0) <= 2
        for server, gpu in users:
            assert gpu not in self.servers[server].dead
            assert self.servers[server].power in (PowerState.ON, PowerState.SWITCHING_ON)


def same_board(board: Board, world: World) -> None:
    """The board that was changed row by row is the one that is built anew from the world."""
    fresh = Mirror(world).board
    assert board.now_s == fresh.now_s
    assert list(board.jobs.items()) == list(fresh.jobs.items())
    assert board.machines == fresh.machines
    assert [entry.id for entry in board.waiting] == [entry.id for entry in fresh.waiting]
    assert [entry.id for entry in board.placed] == [entry.id for entry in fresh.placed]
    assert board.idle == fresh.idle
    users: dict[str, list[list[str]]] = {
        name: [[] for _ in machine.users] for name, machine in board.machines.items()
    }
    for record in world.jobs.values():
        for place in record.places:
            for gpu in place.gpus:
                users[place.server][gpu].append(record.id)
    for name, machine in board.machines.items():
        assert machine.users == users[name]
        assert machine.idle == len(machine.free())
        assert machine.busy() == any(users[name])
        reachable = machine.power is not PowerState.DOWN and not machine.drain
        for gpus in range(1, machine.server.gpus + 1):
            fits = reachable and len(machine.free()) >= gpus
            assert (machine in list(board.room(machine.server.gpu_type, gpus))) == fits
    assert set(board.jobs) == {record.id for record in world.jobs.values() if record.active}


def finished(case: Case) -> Checked:
    world = case.world(Checked)
    assert isinstance(world, Checked)
    run = Run(world, case.policy(world))
    world.mirror = run.mirror
    run.until(HORIZON_S)
    return world


@QUICK
@given(cases())
def test_every_total_is_the_integral_of_what_was_there(case: Case) -> None:
    world = finished(case)
    for name, value in world.sums.items():
        assert getattr(world.totals, name) == pytest.approx(value, rel=1e-7, abs=1e-2), name
    counters = sum(sum(server.energy_j) for server in world.servers.values())
    assert counters == pytest.approx(world.totals.gpu_energy_j, rel=1e-9, abs=1e-6)
    assert world.totals.busy_gpu_s <= world.totals.on_gpu_s + 1e-6


@QUICK
@given(cases())
def test_work_done_and_work_lost_are_the_steps_counted(case: Case) -> None:
    world = finished(case)
    gross_s = 0.0
    assert len({record.id for record in world.ended}) == len(world.ended)
    for record in [*world.ended, *world.jobs.values()]:
        done = world.gross[record.id]
        assert record.steps + record.lost == pytest.approx(done, rel=1e-6, abs=1e-3), record.id
        assert 0 <= record.saved <= record.steps + 1e-9 or record.ended_s is not None
        total = record.demand.job.total_steps
        assert total is None or record.steps <= total * (1 + 1e-9)
        served = record.demand.base_rate is not None
        gross_s += (world.served[record.id] if served else done) / world.middling(record)
    totals = world.totals
    assert totals.work_s + totals.lost_work_s == pytest.approx(gross_s, rel=1e-6, abs=1e-2)


@QUICK
@given(cases())
def test_every_unkept_second_of_a_promise_has_one_cause(case: Case) -> None:
    world = finished(case)
    figures = figures_of(world)
    unkept = figures.promised_job_s - figures.kept_job_s
    assert sum(figures.unkept_job_s.values()) == pytest.approx(unkept, abs=1e-6)
    assert min(figures.unkept_job_s.values()) >= 0
    records = [*world.ended, *world.jobs.values()]
    assert sum(record.promised_s for record in records) == pytest.approx(
        figures.promised_job_s, abs=1e-6
    )
    assert sum(record.attained_s for record in records) == pytest.approx(
        figures.kept_job_s, abs=1e-6
    )
    if case.every_s is None:  # whoever comes or loses its place is decided about at once
        assert figures.unkept_job_s["window"] == 0


@QUICK
@given(cases())
def test_segments_hold_every_step_once(case: Case) -> None:
    world = case.world(Checked)
    assert isinstance(world, Checked)
    segments: list[Segment] = []
    run = Run(world, case.policy(simple=True), observer=segments.append)
    world.mirror = run.mirror
    run.until(HORIZON_S)
    told: defaultdict[str, float] = defaultdict(float)
    for segment in segments:
        if segment.feasible:
            assert segment.ended_s > segment.begun_s
            assert segment.power_w > 0
        else:
            assert (segment.throughput, segment.begun_s) == (0.0, segment.ended_s)
        told[segment.job] += segment.throughput * (segment.ended_s - segment.begun_s)
    for record in [*world.ended, *world.jobs.values()]:
        assert told[record.id] == pytest.approx(world.gross[record.id], rel=1e-6, abs=1e-3)
    assert sum(not segment.feasible for segment in segments) == world.totals.evictions


class _Silent:
    """A recorder that adds up what it is shown."""

    energy_j = 0.0
    before_s = 0.0

    def tick(self, world: World, tick: Tick) -> None:
        self.energy_j += tick.watts * (world.now_s - self.before_s)
        self.before_s = world.now_s


@QUICK
@given(cases())
def test_ticks_with_telemetry_keep_the_same_books(case: Case) -> None:
    world, seen = case.world(), _Silent()
    policy = case.policy(world)
    while world.now_s < HORIZON_S / 3:
        world.settle()
        if world.changed:
            board = Mirror(world).board
            policy.act(board, "event")
            carry_out(board.take_orders(), world)
            world.decided()
            world.changed = False
        world.tick(world.now_s + 10, seen)
    totals = world.totals
    assert totals.energy_j == pytest.approx(seen.energy_j)
    causes = sum(getattr(totals, name) for name in vars_of(totals) if name.startswith("unkept_"))
    assert causes == pytest.approx(totals.promised_s - totals.attained_s, abs=1e-6)


def vars_of(record: object) -> tuple[str, ...]:
    return tuple(type(record).__slots__)  # type: ignore[attr-defined]


class _Looks:
    """Places the first job it can, and keeps what was reachable from its board."""

    name, every_s, on_events = "looks", 300.0, True

    def __init__(self) -> None:
        self.found: list[object] = []
        self.seen = 0

    def act(self, board: Board, why: str) -> None:
        self.seen += len(board.jobs)
        self.found += [one for one in reached(board) if isinstance(one, HIDDEN)]


@settings(max_examples=10, deadline=None)
@given(cases())
def test_the_truth_cannot_be_reached_from_the_board(case: Case) -> None:
    policy = _Looks()
    run = Run(case.world(), policy)
    run.until(HORIZON_S)
    assert policy.seen
    assert not policy.found
    assert not [one for one in reached(run.board) if isinstance(one, HIDDEN)]
    assert any(isinstance(one, World) for one in reached(run))  # the walk does find it


def two_gangs(gpus: int) -> World:
    """Two gangs that fit on a K80 each, but not together."""
    name = "BERT-large (batch size 16)"
    demands = [
        Demand(
            Job(
                f"j{number}",
                CLASSES[name].descriptors,
                START,
                gpu_counts=(gpus,),
                max_gpus=gpus,
                total_steps=1e6,
            ),
            0.0,
        )
        for number in range(2)
    ]
    source = ListedSource(demands)
    world = World([Server("s0", "k80", gpus, 300.0)], TRUTH, source, start=START, seed=0)
    world.settle()
    return world


def test_a_gang_that_does_not_fit_on_several_gpus_is_thrown_out_once() -> None:
    world = two_gangs(4)
    for job in ("j0", "j1"):
        actions.place(world, job, tuple(Slot("s0", (gpu,)) for gpu in range(4)))
    world.step(20.0)
    world.settle()
    assert world.totals.evictions == 1
    assert [world.jobs[job].failures for job in ("j0", "j1")] == [0, 1]
    assert [len(world.jobs[job].places) for job in ("j0", "j1")] == [4, 0]


def test_a_gang_is_not_given_one_gpu_twice() -> None:
    world = two_gangs(2)
    with pytest.raises(ActionFailed, match="distinct"):
        actions.place(world, "j0", (Slot("s0", (0,)), Slot("s0", (0,))))
    assert not world.jobs["j0"].places
