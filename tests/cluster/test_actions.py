"""Plans as ordered actions: whatever is to be swapped, no GPU is ever taken twice."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings, strategies

from gogh_core.cluster import Capabilities
from gogh_core.cluster.actions import Action, Kind, actions_of, not_capable
from gogh_core.cluster.fit import Now, misfit
from gogh_core.domain import ClusterState, JobStatus, Mode, Placement, Slot
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


@given(reshuffles())
@settings(derandomize=True, deadline=None, max_examples=200)
def test_in_the_given_order_every_gpu_is_free_when_it_is_taken(jobs) -> None:
    statuses = [running(j, at(*b)) if b else waiting(j) for j, b, _ in jobs]
    basis = ClusterState(NOW, tuple(server(f"s{n}", GPUS) for n in range(3)), tuple(statuses))
    a_plan = plan(
        places={j: at(*a) for j, b, a in jobs if a and (b is None or a == b)},
        moves=[(j, at(*b), at(*a)) for j, b, a in jobs if a and b and a != b],
        stops=[(j, at(*b)) for j, b, a in jobs if b and not a],
    )
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
    assert actions_of(a_plan, basis, ALL) == actions, "the same each time"


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
