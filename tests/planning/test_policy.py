"""GOGH as a policy: the plan's orders on a board, and what it keeps for a resumed run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from gogh_core.domain import Mode, Move, Placement, Plan, Slot
from gogh_core.planning import Learned
from gogh_core.planning.policy import carry_out
from gogh_core.settings import SimulationSettings
from gogh_core.simulation import Run, TrueRates, make_policy, new_world


@pytest.mark.parametrize("held", [0, 1])
def test_of_two_jobs_that_swap_the_one_that_the_plan_holds_is_held(held: int) -> None:
    world = new_world(SimulationSettings(servers=12, seed=1))
    world.settle()
    board = Run(world, make_policy("fcfs", TrueRates(world.truth), window_s=300)).board
    server = next(name for name, machine in board.machines.items() if machine.server.gpus > 1)
    jobs = [
        entry.id
        for entry in board.waiting
        if entry.job.mode is Mode.GANG and entry.job.gpu_counts == (1,) and entry.job.movable
    ][:2]
    slots = [Slot(server, (gpu,)) for gpu in range(2)]
    for job, slot in zip(jobs, slots, strict=True):
        board.place(job, (slot,))
    board.take_orders()
    placements = tuple(
        Placement(job, (slot,), None, 1.0) for job, slot in zip(jobs, slots[::-1], strict=True)
    )
    moves = tuple(
        Move(2 if n == held else 1, jobs[n], (slots[n],), (slots[1 - n],), "", held=n == held)
        for n in range(2)
    )
    swap = Plan("p", "optimal", "glpk", 0.0, 1.0, 1.0, 0.0, placements=placements, moves=moves)
    assert carry_out(swap, board.state(), board) == []
    assert [(order.do, order.target) for order in board.take_orders()] == [
        ("stop", jobs[held]),
        ("move", jobs[1 - held]),
        ("place", jobs[held]),
    ]


@dataclass
class Stretch:
    """A measured stretch."""

    feasible: bool = True
    job: str = "j"
    job_class: str = "A"
    owner: str = "ann"
    gpu_type: str = "v100"
    gpus: int = 1
    partner_class: str | None = None
    throughput: float = 5.0
    power_w: float = 200.0
    begun_s: float = 0.0
    ended_s: float = 300.0


def test_what_was_learned_goes_through_json_and_on_with_the_same_noise() -> None:
    world = new_world(SimulationSettings(servers=4, seed=1))
    world.settle()
    state = Run(world, make_policy("fcfs", TrueRates(world.truth), window_s=300)).board.state()
    start = datetime(2026, 1, 5, tzinfo=UTC)
    first, second = Learned(start), Learned(start)
    name = state.jobs[0].job.job_class
    first.observe(Stretch(job_class=name))
    table = first.options(state, fresh=True)
    second.restore(json.loads(json.dumps(first.to_dict())))
    assert second.options(state, fresh=False).equals(table), "the kept options, not estimated anew"
    for learned in (first, second):
        learned.observe(Stretch(job_class=name))
    assert first.to_dict() == second.to_dict()


def test_a_refusal_is_known_before_the_next_window() -> None:
    world = new_world(SimulationSettings(servers=4, seed=1))
    world.settle()
    state = Run(world, make_policy("fcfs", TrueRates(world.truth), window_s=300)).board.state()
    learned = Learned(datetime(2026, 1, 5, tzinfo=UTC))

    name, kind = state.jobs[0].job.job_class, state.servers[0].server.gpu_type

    def runs() -> float:
        way = (name, None, kind, 1)
        return next(
            row["feasible_probability"]
            for row in learned.options(state, fresh=False).to_pylist()
            if (row["class_a"], row["class_b"], row["gpu_type"], row["gpus"]) == way
        )

    assert runs() > 0.9
    learned.observe(Stretch(job_class=name, gpu_type=kind, feasible=False, throughput=0.0))
    assert runs() < 0.1
