"""Plans as ordered actions: whatever is to be swapped, no GPU is ever taken twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies

from gogh_core.allocation import Option, Problem, ProblemJob, ProblemServer, violations_of
from gogh_core.allocation.compiled import Compiled, Seat
from gogh_core.allocation.moves import order_of_moves
from gogh_core.cluster import Capabilities
from gogh_core.cluster.actions import Action, Kind, actions_of, not_capable
from gogh_core.cluster.fit import Now, misfit
from gogh_core.domain import ClusterState, JobStatus, Mode, Placement, Plan, Slot
from gogh_core.errors import InvalidPlan
from tests.cluster.fake import NOW, at, plan, running, server, waiting

ALL = Capabilities(True, True, True, True)
NONE = Capabilities(False, False, False, False)
GPUS = 3


@strategies.composite
def reshuffles(draw):
    """Jobs on single GPUs before and after; None is waiting."""
    cells = [(f"s{s}", g) for s in range(3) for g in range(GPUS)]
    count = draw(strategies.integers(1, len(cells)))
    before = draw(strategies.permutations(cells))[:count]
    after = draw(strategies.permutations(cells))[:count]
    runs = draw(strategies.lists(strategies.booleans(), min_size=count, max_size=count))
    will = draw(strategies.lists(strategies.booleans(), min_size=count, max_size=count))
    return [
        (f"j{n}", b if r else None, a if w else None)
        for n, (b, a, r, w) in enumerate(zip(before, after, runs, will, strict=True))
    ]


def ordered(jobs, costs_j: list[float]) -> tuple[Plan, ClusterState]:
    """The reshuffle as a plan whose moves the planner has put in order, and its basis."""
    statuses = [running(j, at(*b)) if b else waiting(j) for j, b, _ in jobs]
    basis = ClusterState(NOW, tuple(server(f"s{n}", GPUS) for n in range(3)), tuple(statuses))
    problem = Problem(
        300.0,
        5000.0,
        {"v100": 10.0},
        [ProblemServer(f"s{n}", "v100", GPUS, 300.0) for n in range(3)],
        [
            ProblemJob(j, "A", at=at(*b) if b else (), move_cost_j=cost_j)
            for (j, b, _), cost_j in zip(jobs, costs_j, strict=True)
        ],
        [Option("v100", 1, ("A",), (4.0,), 100.0)],
    )
    seats = {n: [Seat(n, ((a[0], (a[1],)),), 0)] for n, (_, _, a) in enumerate(jobs) if a}
    moves, _ = order_of_moves(Compiled(problem), seats)
    a_plan = plan(
        places={j: at(*a) for j, _, a in jobs if a},
        stops=[(j, at(*b)) for j, b, a in jobs if b and not a],
    )
    return replace(a_plan, moves=moves), basis


def held(actions) -> set[str | None]:
    """Jobs that give their GPUs up first and are placed again."""
    placed = {action.job for action in actions if action.kind is Kind.PLACE}
    return {action.job for action in actions if action.kind is Kind.HOLD} & placed


@given(reshuffles(), strategies.data())
@settings(derandomize=True, deadline=None, max_examples=200)
def test_in_the_given_order_every_gpu_is_free_when_it_is_taken(jobs, data) -> None:
    costs = strategies.lists(strategies.floats(0, 9e4), min_size=len(jobs), max_size=len(jobs))
    a_plan, basis = ordered(jobs, data.draw(costs))
    actions = actions_of(a_plan, basis, ALL)
    holder = {b: j for j, b, _ in jobs if b}
    done: set[str] = set()
    for action in actions:
        assert set(action.needs) <= done
        done.add(action.id)
        holder = {cell: j for cell, j in holder.items() if j != action.job}
        for slot in action.slots:
            for gpu in slot.gpus:
                assert (slot.server, gpu) not in holder
                holder[slot.server, gpu] = action.job or ""
    assert holder == {a: j for j, _, a in jobs if a}
    assert held(actions) == {move.job for move in a_plan.moves if move.held}
    assert actions_of(a_plan, basis, ALL) == actions, "the same each time"


@given(strategies.permutations(range(9)), strategies.permutations(range(9)))
@settings(derandomize=True, deadline=None, max_examples=200)
def test_of_each_cycle_exactly_the_job_is_held_that_is_cheapest_to_move(after, costs) -> None:
    """Nine jobs on nine GPUs change places; the executor holds the jobs that the plan holds."""
    cells = [(f"s{n // GPUS}", n % GPUS) for n in range(9)]
    jobs = [(f"j{n}", cells[n], cells[after[n]]) for n in range(9)]
    a_plan, basis = ordered(jobs, [float(cost) for cost in costs])
    cheapest, seen = set(), set()
    for start in range(9):
        cycle = [start]
        while after[cycle[-1]] != start:
            cycle.append(after[cycle[-1]])
        if len(cycle) > 1 and not seen & set(cycle):
            cheapest.add(f"j{min(cycle, key=lambda n: costs[n])}")
        seen |= set(cycle)
    assert {move.job for move in a_plan.moves if move.held} == cheapest
    assert held(actions_of(a_plan, basis, ALL)) == cheapest


def test_only_jobs_of_a_cycle_are_held_not_those_that_wait_for_it() -> None:
    """`a` and `b` swap; `x` follows `a`, and `y` and `z` follow `x`: holding `x` opens nothing."""
    problem = Problem(
        300.0,
        5000.0,
        {"v100": 10.0},
        [ProblemServer("s0", "v100", 8, 300.0)],
        [
            ProblemJob("a", "A", at=at("s0", 0), move_cost_j=9.0),
            ProblemJob("b", "A", at=at("s0", 1), move_cost_j=9.0),
            ProblemJob("x", "A", gpu_counts=(1, 2), at=at("s0", 2, 3), move_cost_j=1.0),
            ProblemJob("y", "A", at=at("s0", 4), move_cost_j=9.0),
            ProblemJob("z", "A", at=at("s0", 5), move_cost_j=9.0),
        ],
        [
            Option("v100", 1, ("A",), (4.0,), 100.0),
            Option("v100", 2, ("A",), (8.0,), 200.0),
            Option("v100", 1, ("A", "A"), (3.0, 3.0), 120.0),
        ],
    )
    goals = {0: 1, 1: 0, 2: 0, 3: 2, 4: 3}
    seats = {job: [Seat(job, (("s0", (gpu,)),), 0)] for job, gpu in goals.items()}
    _, found = order_of_moves(Compiled(problem), seats)
    assert found in (["a"], ["b"])


def test_a_cycle_that_the_plan_does_not_open_is_refused() -> None:
    basis = ClusterState(
        NOW, (server("s1"),), (running("a", at("s1", 0)), running("b", at("s1", 1)))
    )
    swap = plan(moves=[("a", at("s1", 0), at("s1", 1)), ("b", at("s1", 1), at("s1", 0))])
    with pytest.raises(InvalidPlan, match="a, b wait for each other, and the plan holds none"):
        actions_of(swap, basis, ALL)


def test_actions_survive_the_journal() -> None:
    action = Action(
        "move:ж",
        Kind.MOVE,
        2,
        job="ж",
        slots=at("s1", 0, 1),
        source=at("s2", 3),
        partners=("b", "c"),
        power_limit_w=150.0,
        needs=("hold:a",),
        reason="“saves 3 W”",
    )
    assert Action.from_json(action.to_json()) == action


def test_a_server_goes_off_after_everybody_left_and_on_before_anybody_comes() -> None:
    basis = ClusterState(NOW, (server("s1"), server("s2")), (running("a", at("s1", 0)),))
    a_plan = plan(moves=[("a", at("s1", 0), at("s2", 0))], servers={"s1": "off", "s2": "on"})
    order = [action.id for action in actions_of(a_plan, basis, ALL)]
    assert order == ["on:s2", "move:a", "off:s1"]


def test_a_plan_asks_only_for_what_can_be_done() -> None:
    basis = ClusterState(NOW, (server("s1"),), (waiting("a"), waiting("b")))
    a_plan = plan(
        places={"a": at("s1", 0), "b": at("s1", 0)},
        partners={"a": "b", "b": "a"},
        servers={"s1": "off"},
    )
    kinds = {action.kind for action in actions_of(a_plan, basis, NONE)}
    assert kinds == {Kind.PLACE}
    said = " ".join(not_capable(a_plan, NONE))
    assert "switches no servers" in said
    assert "chooses itself who meets whom" in said
    assert not_capable(a_plan, ALL) == ()


def spread(name: str, *gpus: int) -> JobStatus:
    status = running(name, tuple(Slot("s1", (gpu,)) for gpu in gpus))
    return replace(status, job=replace(status.job, mode=Mode.SPREAD, max_gpus=4))


def test_a_spread_job_may_share_each_of_its_gpus_with_somebody_else() -> None:
    """Replicas next to `a` and `b` are planned company, and those that stay hold nobody up."""
    wide = spread("wide", 0, 1, 2)
    basis = ClusterState(NOW, (server("s1"),), (wide, running("a", at("s1", 1)), waiting("b")))
    a_plan = replace(
        plan(moves=[("wide", wide.slots, at("s1", 1, 3))]),
        placements=(
            Placement("wide", at("s1", 1), "a", 5.0),
            Placement("wide", at("s1", 3), "b", 5.0),
            Placement("a", at("s1", 1), "wide", 5.0),
            Placement("b", at("s1", 3), "wide", 5.0),
        ),
    )
    actions = {action.id: action for action in actions_of(a_plan, basis, ALL)}
    assert actions["move:wide"].partners == ("a", "b")
    assert actions["move:wide"].needs == actions["place:b"].needs == ()
    now = Now(basis, ALL)
    assert [misfit(action, now) for action in actions.values()] == [None, None]
    crowd = replace(basis, jobs=(*basis.jobs, running("x", at("s1", 3))))
    assert misfit(actions["move:wide"], Now(crowd, ALL)) == "GPU 3 of s1 is taken by x"


def test_a_spread_job_that_keeps_a_replica_is_not_held_for_whoever_joins_it() -> None:
    """`b` comes to GPU 1 and leaves GPU 2, where `wide` goes and keeps its replica on GPU 1."""
    problem = Problem(
        300.0,
        5000.0,
        {"v100": 10.0},
        [ProblemServer("s1", "v100", 4, 300.0)],
        [
            ProblemJob("b", "A", at=at("s1", 2)),
            ProblemJob("wide", "A", mode="spread", max_gpus=4, at=at("s1", 0, 1)),
        ],
        [
            Option("v100", 1, ("A",), (4.0,), 100.0),
            Option("v100", 1, ("A", "A"), (3.0, 3.0), 120.0),
        ],
    )
    seats = {
        0: [Seat(0, (("s1", (1,)),), 1, 1)],
        1: [Seat(1, (("s1", (1,)),), 1, 0), Seat(1, (("s1", (2,)),), 0)],
    }
    moves, found = order_of_moves(Compiled(problem), seats)
    assert found == []
    assert [(move.job, move.step) for move in moves] == [("b", 1), ("wide", 2)]
    wide = spread("wide", 0, 1)
    basis = ClusterState(NOW, (server("s1"),), (wide, running("b", at("s1", 2))))
    placements = (
        Placement("b", at("s1", 1), "wide", 3.0),
        Placement("wide", at("s1", 1), "b", 3.0),
        Placement("wide", at("s1", 2), None, 4.0),
    )
    a_plan = replace(plan(), moves=moves, placements=placements)
    assert [action.id for action in actions_of(a_plan, basis, ALL)] == ["move:b", "move:wide"]
    rule = "moves_can_be_carried_out"
    assert rule not in {v.rule for v in violations_of(problem, a_plan)}
    swapped = tuple(replace(move, step=3 - move.step) for move in moves)
    assert rule in {v.rule for v in violations_of(problem, replace(a_plan, moves=swapped))}
