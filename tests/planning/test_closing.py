"""Maintenance windows: who may start on a server that will be drained, who stays, who leaves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how

from gogh_core.allocation import greedy, plan, verify
from gogh_core.cluster import Capabilities
from gogh_core.domain import (
    ClusterState,
    Cycle,
    Descriptors,
    Job,
    JobKind,
    JobState,
    JobStatus,
    Mode,
    Plan,
)
from gogh_core.planning import Draft, Estimated, Order, Request, allocate_step, draft_problem
from gogh_core.settings import Settings, load
from tests.planning.conftest import NOW, cluster, job, options, server

ALL = Capabilities(True, True, True, True)
MINUTE = timedelta(minutes=1)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return load(home=tmp_path_factory.mktemp("closing"))


def closing(name: str = "s", *, minutes: float = 60, number: int = 7) -> Order:
    return Order("drain", name, NOW + minutes * MINUTE, "ann", NOW, reason="fan", id=number)


def draft(state: ClusterState, rules: Settings, *orders: Order, **more: Any) -> Draft:
    return draft_problem(state, options(), rules, Request(), NOW, orders=orders, **more)


def solved(state: ClusterState, rules: Settings, *orders: Order) -> Plan:
    made = draft(state, rules, *orders)
    found = plan(made.posed, gap=0.0)
    assert verify(made.posed, found) == []
    return made.told(found)


def places(made: Plan) -> dict[str, str]:
    return {p.job: p.slots[0].server for p in made.placements}


SHORT, LONG = 30_000.0, 40_000.0
"""Steps of ResNet-50: 10 a second on a v100, so 50 and 67 minutes."""


def test_jobs_that_would_not_be_done_by_then_do_not_start_there(rules: Settings) -> None:
    jobs = [job("long", total_steps=LONG), job("short", total_steps=SHORT)]
    made = solved(cluster([server("s", gpus=8)], jobs), rules, closing())
    assert places(made) == {"short": "s"}
    (waits,) = made.waiting
    assert waits.job == "long"
    assert waits.reason.endswith("; orders in its way: server s is drained (order 7)")


def test_without_the_window_both_start(rules: Settings) -> None:
    jobs = [job("long", total_steps=LONG), job("short", total_steps=SHORT)]
    assert places(solved(cluster([server("s")], jobs), rules)) == {"long": "s", "short": "s"}


def test_jobs_that_end_nowhere_start_elsewhere(rules: Settings) -> None:
    serving = JobStatus(
        Job("serve", Descriptors("LM", kind=JobKind.INFERENCE), NOW, total_steps=5.0),
        JobState.WAITING,
    )
    spread = job("spread", "LM", mode=Mode.SPREAD, max_gpus=2, required_throughput=30.0)
    state = cluster([server("s"), server("t")], [job("endless"), serving, spread])
    made = solved(state, rules, closing("s"))
    assert {slot.server for p in made.placements for slot in p.slots} == {"t"}
    assert {p.job for p in made.placements} == {"endless", "serve", "spread"}


def test_a_job_that_is_there_stays_until_the_last_plan_before(rules: Settings) -> None:
    state = cluster(
        [server("s"), server("t")], [job("long", total_steps=LONG, at=(("s", (0,)),), ago_s=9999)]
    )
    assert places(solved(state, rules, closing(minutes=30))) == {"long": "s"}
    made = solved(state, rules, closing(minutes=4))
    assert places(made) == {"long": "t"}
    (move,) = made.moves
    assert move.reason == "server s is drained by ann from 2026-01-05 12:04 (order 7): fan"


def test_a_young_job_leaves_a_server_that_closes_within_the_window(rules: Settings) -> None:
    state = cluster(
        [server("s"), server("t")], [job("long", total_steps=LONG, at=(("s", (0,)),), ago_s=30)]
    )
    made = solved(state, rules, closing(minutes=4))
    assert (places(made), made.stops) == ({"long": "t"}, ())


def test_a_job_that_ends_in_time_is_not_moved(rules: Settings) -> None:
    jobs = [job("j", total_steps=2000.0, steps_done=200.0, at=(("s", (0,)),), ago_s=9999)]
    state = cluster([server("s"), server("t")], jobs)
    assert places(solved(state, rules, closing(minutes=4))) == {"j": "s"}


def test_at_the_start_everybody_leaves(rules: Settings) -> None:
    jobs = [job("j", total_steps=100.0, at=(("s", (0,)),), ago_s=9999)]
    made = solved(cluster([server("s"), server("t")], jobs), rules, closing(minutes=0))
    assert places(made) == {"j": "t"}
    assert made.moves[0].reason.startswith("server s is drained by ann since 2026-01-05 12:00")


def test_partners_that_run_there_stay_partners(rules: Settings) -> None:
    at = (("s", (0,)),)
    jobs = [job("a", at=at, ago_s=9999), job("b", "LM", at=at, ago_s=9999), job("c", "LM")]
    made = solved(cluster([server("s", gpus=1)], jobs), rules, closing())
    assert places(made) == {"a": "s", "b": "s"}
    assert {p.job: p.partner for p in made.placements} == {"a": "b", "b": "a"}


def test_a_gang_over_several_servers_closes_them_together(rules: Settings) -> None:
    big = {"gpu_type": "v100", "gpus": 8, "class_a": "ResNet-50", "throughput_a": 60.0}
    table = options(big | {"power_w": 1600.0})
    at = (("s", (0, 1, 2, 3)), ("t", (0, 1, 2, 3)))
    jobs = [job("gang", gpu_counts=(8,), at=at, ago_s=9999), job("next", gpu_counts=(8,))]
    state = cluster([server("s"), server("t"), server("u")], jobs)
    made = draft_problem(state, table, rules, Request(), NOW, orders=[closing("s")])
    kinds = {s.id: s.gpu_type for s in made.posed.servers}
    assert kinds == {
        "s": "v100 until 2026-01-05 13:00",
        "t": "v100 until 2026-01-05 13:00",
        "u": "v100",
    }
    assert [w.job for w in made.waiting] == []
    found = plan(made.posed)
    assert [p.job for p in found.placements] == ["gang"]


def test_a_gang_that_only_closing_servers_could_hold_waits_with_the_reason(rules: Settings) -> None:
    big = {"gpu_type": "v100", "gpus": 8, "class_a": "ResNet-50", "throughput_a": 60.0}
    table = options(big | {"power_w": 1600.0})
    state = cluster([server("s"), server("t")], [job("gang", gpu_counts=(8,)), job("j")])
    made = draft_problem(state, table, rules, Request(), NOW, orders=[closing("s")])
    assert [w.job for w in made.waiting] == ["gang"]
    assert "about to be drained" in made.waiting[0].reason
    assert places(plan(made.posed)) == {"j": "t"}


def test_foreign_work_does_not_keep_a_window_from_being_planned(rules: Settings) -> None:
    state = cluster([server("s", foreign_gpus=(0,)), server("t")], [job("j", total_steps=SHORT)])
    made = solved(state, rules, closing("s"))
    assert made.status != "infeasible"


def test_a_window_makes_the_same_plan_twice_and_real_names_outside_the_solver(
    rules: Settings,
) -> None:
    jobs = [job("long", total_steps=LONG), job("short", total_steps=SHORT), job("b", "LM")]
    state = cluster([server("s"), server("t"), server("k", "k80")], jobs)
    estimated = Estimated(options(), "test")

    def made(given: ClusterState) -> Any:
        return allocate_step(
            given,
            estimated,
            rules,
            Request(),
            NOW,
            cycle=Cycle(NOW),
            capabilities=ALL,
            orders=[closing("s"), closing("t", minutes=90, number=8)],
        )

    first = made(state)
    again = made(cluster(list(state.servers[::-1]), list(state.jobs[::-1])))
    assert first.plan.id == again.plan.id
    assert first.plan.placements == again.plan.placements
    assert {s.gpu_type for s in first.draft.problem.servers} == {"v100", "k80"}
    assert {j.job_class for j in first.draft.problem.jobs} == {"ResNet-50", "LM"}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[ClusterState, list[Order]]:
    """Small clusters with jobs of all lengths, some running, and one or two windows."""
    servers = [
        server(name, kind, gpus=draw(st.integers(1, 2)))
        for name, kind in (("s", "v100"), ("t", draw(st.sampled_from(["v100", "k80"]))))
    ]
    free = {s.server.id: list(range(s.server.gpus)) for s in servers}
    jobs = []
    for number in range(draw(st.integers(1, 4))):
        steps = draw(st.none() | st.sampled_from([600.0, 3000.0, 30_000.0, 100_000.0]))
        where = draw(st.sampled_from(["", "s", "t"]))
        at = ((where, (free[where].pop(),)),) if where and free[where] else ()
        model = draw(st.sampled_from(["ResNet-50", "LM"]))
        jobs.append(job(f"j{number}", model, at=at, ago_s=9999, total_steps=steps))
    windows = [
        closing(name, minutes=draw(st.sampled_from([2, 6, 20, 60])), number=number)
        for number, name in enumerate(draw(st.sampled_from(["s", "t", "st"])), 1)
    ]
    return cluster(servers, jobs), windows


@given(world=worlds(), quick=st.booleans())
@how(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nobody_is_ever_started_where_it_would_not_be_done(
    rules: Settings, world: tuple[ClusterState, list[Order]], quick: bool
) -> None:
    state, windows = world
    made = draft(state, rules, *windows)
    found = greedy(made.posed) if quick else plan(made.posed, gap=0.0)
    assert verify(made.posed, found) == []
    closes_s = {o.subject: (o.begins_at - NOW).total_seconds() for o in windows}
    kinds = {s.server.id: (s.server.gpu_type, closes_s.get(s.server.id)) for s in state.servers}
    for placement in found.placements:
        status = state.job(placement.job)
        assert status is not None
        for slot in placement.slots:
            seconds = closes_s.get(slot.server)
            # A job that runs on servers that close together may change places among them.
            there = any(kinds[old.server] == kinds[slot.server] for old in status.slots)
            if seconds is None or (there and seconds >= rules.cycle.window_s):
                continue
            steps = status.job.total_steps
            assert steps is not None, f"{placement.job} never ends"
            assert steps / placement.throughput <= seconds


@given(world=worlds())
@how(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_window_far_enough_away_costs_nothing(
    rules: Settings, world: tuple[ClusterState, list[Order]]
) -> None:
    """With jobs that end before it, the best plan costs what it costs without a window."""
    state, windows = world
    jobs = tuple(status for status in state.jobs if status.job.total_steps is not None)
    state = cluster(list(state.servers), list(jobs))
    late = [closing(order.subject, minutes=1e6, number=order.id) for order in windows]
    free, bound = draft(state, rules), draft(state, rules, *late)
    plain = plan(free.posed, gap=0.0)
    around = plan(bound.posed, gap=0.0)
    assert around.cost_w >= plain.cost_w - 1e-6
    alone = all(p.partner is None for p in plain.placements)
    if alone and not plain.moves:
        assert around.cost_w == pytest.approx(plain.cost_w)
