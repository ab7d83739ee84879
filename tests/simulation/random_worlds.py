"""Small random worlds and a policy that gives random orders, legal and illegal, for hypothesis."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies

from gogh_core.domain import Job, Mode, Server, Slot
from gogh_core.errors import ActionFailed, InvalidInput
from gogh_core.simulation import actions
from gogh_core.simulation.arrivals import Demand, ListedSource
from gogh_core.simulation.board import Board, Order
from gogh_core.simulation.classes import CLASSES
from gogh_core.simulation.truth import PhysicalTruth
from gogh_core.simulation.world import World

START = datetime(2026, 1, 5, 9, 7, 13, 250_000, tzinfo=UTC)
TRUTH = PhysicalTruth(CLASSES, 0)
SMALL, LARGE, SERVICE = (
    "ResNet-18 (batch size 32)",
    "BERT-large (batch size 16)",  # two of them do not fit on a K80, nor one beside others
    "ResNet-50 serving (batch size 8)",
)
TYPES = ("k80", "v100", "a100")
HORIZON_S = 5400.0


@dataclass(frozen=True)
class Case:
    """What a world and its policy are made of."""

    servers: tuple[Server, ...]
    demands: tuple[Demand, ...]
    seed: int
    alike: bool
    every_s: float | None
    on_events: bool

    def world(self, kind: type[World] = World) -> World:
        return kind(
            self.servers,
            TRUTH,
            ListedSource(list(self.demands)),
            start=START,
            seed=self.seed,
            alike=self.alike,
        )

    def policy(self, world: World | None = None, **more: Any) -> Chaos:
        return Chaos(self.seed, self.every_s, self.on_events, world, **more)


@strategies.composite
def cases(draw: Any) -> Case:
    sizes = draw(strategies.lists(strategies.integers(1, 4), min_size=1, max_size=3))
    servers = tuple(
        Server(f"s{number}", draw(strategies.sampled_from(TYPES)), gpus, 300.0, 6.0)
        for number, gpus in enumerate(sizes)
    )
    rows = draw(
        strategies.lists(
            strategies.tuples(
                strategies.floats(0, 3000), strategies.floats(30, 3000), strategies.integers(0, 999)
            ),
            min_size=1,
            max_size=8,
        )
    )
    rows.sort()
    demands = tuple(_demand(number, *row) for number, row in enumerate(rows))
    every_s = draw(strategies.sampled_from((None, 300.0, 77.7)))
    on_events = every_s is None or draw(strategies.booleans())
    seed = draw(strategies.integers(0, 2**16))
    return Case(servers, demands, seed, draw(strategies.booleans()), every_s, on_events)


def _demand(number: int, arrives_s: float, length_s: float, seed: int) -> Demand:
    rng = random.Random(seed)
    name = rng.choice((SMALL, LARGE, SERVICE))
    usual = TRUTH.run("v100", 1, (name,))
    assert usual is not None
    rate = usual.throughput[0]
    job = Job(
        id=f"j{number}",
        descriptors=CLASSES[name].descriptors,
        submitted_at=START,
        owner=rng.choice("ab"),
        required_throughput=rng.choice((0.0, 0.3 * rate, 1.2 * rate)),
        shareable=rng.choice((True, True, "owner", False)),
        movable=rng.random() < 0.8,
    )
    if name == SERVICE:
        job = replace(job, mode=Mode.SPREAD, max_gpus=rng.choice((1, 2, 3)), unit="requests/s")
        return Demand(job, arrives_s, base_rate=rate, phase_h=8.0, lasts_s=length_s)
    counts = rng.choice(((1,), (1, 2), (2,), (4,)))
    job = replace(job, gpu_counts=counts, max_gpus=max(counts), total_steps=rate * length_s)
    return Demand(job, arrives_s, graceful=rng.random() < 0.5)


class Chaos:
    """Does what comes to its mind; what the world refuses must leave no trace."""

    name = "chaos"

    def __init__(
        self,
        seed: int,
        every_s: float | None,
        on_events: bool,
        world: World | None = None,
        *,
        simple: bool = False,
    ) -> None:
        self.every_s, self.on_events = every_s, on_events
        self._rng = random.Random(seed)
        self._world = world  # for faults, which no scheduler orders
        self._simple = simple  # legal orders with one slot for each gang

    def act(self, board: Board, why: str) -> None:
        rng = self._rng
        for entry in list(board.jobs.values()):
            if rng.random() < 0.7:
                with suppress(ActionFailed):
                    self._order(board, entry.id)
        if rng.random() < 0.3:
            board.idle_off(keep=rng.sample(sorted(board.machines), 1))
        if self._simple:
            return
        for _ in range(rng.randint(0, 2)):
            board.orders.insert(rng.randint(0, len(board.orders)), self._nonsense(board))
        if self._world is not None and rng.random() < 0.1:
            self._break(self._world)

    def _order(self, board: Board, job: str) -> None:
        entry, rng = board.jobs[job], self._rng
        draw = rng.random()
        if not entry.slots:
            board.place(job, self._slots(board, job))
        elif draw < 0.15:
            board.stop(job)
        elif draw < 0.4:
            limit_w = rng.choice((None, None, 120.0))
            board.move(job, self._slots(board, job), limit_w)

    def _slots(self, board: Board, job: str) -> tuple[Slot, ...]:
        asked, rng = board.jobs[job].job, self._rng
        machine = rng.choice(list(board.machines.values()))
        gpus = list(range(machine.server.gpus))
        if asked.mode is Mode.SPREAD:
            most = min(asked.max_gpus, len(gpus))
            chosen = rng.sample(gpus, rng.randint(1, most))
            return tuple(Slot(machine.server.id, (gpu,)) for gpu in sorted(chosen))
        count = rng.choice(asked.gpu_counts)
        taken = sorted(rng.sample(gpus, min(count, len(gpus))))
        if rng.random() < 0.3 and not self._simple:
            return tuple(Slot(machine.server.id, (gpu,)) for gpu in taken)
        return (Slot(machine.server.id, tuple(taken)),)

    def _nonsense(self, board: Board) -> Order:
        rng = self._rng
        servers, jobs = [*board.machines, "nowhere"], [*board.jobs, "nobody"]
        slots = tuple(
            Slot(rng.choice(servers), tuple(sorted(rng.sample(range(6), rng.randint(1, 3)))))
            for _ in range(rng.randint(0, 3))
        )
        do = rng.choice(("place", "move", "stop", "on", "off"))
        if do in ("on", "off"):
            return Order(do, rng.choice(servers))
        return Order(do, rng.choice(jobs), slots, rng.choice((None, 150.0)))

    def _break(self, world: World) -> None:
        rng = self._rng
        server = rng.choice(sorted(world.servers))
        kind, target = rng.choice(
            (
                ("gpu_dies", f"{server}/0"),
                ("server_vanishes", server),
                ("server_returns", server),
                ("server_returns", server),
                ("job_crashes", rng.choice([*world.jobs, "nobody"])),
            )
        )
        with suppress(ActionFailed, InvalidInput):
            actions.fault(world, kind, target)

    def to_dict(self) -> dict[str, Any]:
        version, numbers, gauss = self._rng.getstate()
        return {"rng": [version, list(numbers), gauss]}

    def restore(self, raw: dict[str, Any]) -> None:
        version, numbers, gauss = raw["rng"]
        self._rng.setstate((version, tuple(numbers), gauss))
