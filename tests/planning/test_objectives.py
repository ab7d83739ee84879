"""Each objective on small states: what it weighs, what waits, and what never does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as how_often
from hypothesis import strategies as st

from gogh_core.allocation import plan, verify
from gogh_core.cluster import Capabilities, needs_approval
from gogh_core.domain import ClusterState, Cycle, JobStatus, Plan
from gogh_core.planning import Aim, Allocated, Draft, Estimated, Request, allocate_step
from gogh_core.planning import draft_problem as draft
from gogh_core.planning.curves import Curve, read_curve
from gogh_core.planning.objectives import OBJECTIVES, Outlook, Work, worth
from gogh_core.planning.request import Objective
from gogh_core.settings import Settings, load
from tests.planning.conftest import NOW, cluster, job, options, server

ALL = Capabilities(True, True, True, True)
HOUR = timedelta(hours=1)
HERE = (("s", (0,)),)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return load(home=tmp_path_factory.mktemp("objectives"))


def curve(*points: tuple[Any, float], kind: str = "price") -> Curve:
    """A curve by the hour of the day; NOW is noon."""
    text = "at,value\n" + "".join(f"{at},{value}\n" for at, value in points)
    return read_curve(text.encode(), kind, source="prices.csv")  # type: ignore[arg-type]


NIGHT = curve((0, 0.31), (2, 0.11), (6, 0.31))
"""Cheap from 02:00 to 06:00."""
DAY = curve((0, 0.31), (10, 0.11), (15, 0.31))
"""Cheap now, from 10:00 to 15:00."""


def cost(prices: Curve = NIGHT, **more: Any) -> Aim:
    return Aim("cost", prices, **more)


def posed(state: ClusterState, rules: Settings, aim: Aim, **how: Any) -> Draft:
    return draft(state, options(), rules, Request(), NOW, aim=aim, **how)


def allocated(state: ClusterState, rules: Settings, aim: Aim, **how: Any) -> Allocated:
    return allocate_step(
        state,
        Estimated(options(), "test"),
        rules,
        Request(),
        NOW,
        cycle=Cycle.at(NOW, 300),
        capabilities=ALL,
        aim=aim,
        **how,
    )


def running(made: Plan) -> set[str]:
    return {placement.job for placement in made.placements}


def effort(name: str, hours: float = 1.0, **fields: Any) -> JobStatus:
    """Best effort that takes so long on a v100; it came an hour ago."""
    return job(name, total_steps=36_000.0 * hours, ago_s=3600.0, **fields)


# -- the weights -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "factor"), [("energy", 1.0), ("watts", 0.0), ("throughput", 4.0), ("cost", 1.0)]
)
def test_a_step_is_worth_what_its_energy_weighs_later(name: Objective, factor: float) -> None:
    """Without a curve there is no better time than now."""
    found = worth(Outlook(NOW, aim=Aim(name)), Work(20.0))
    assert found.step_j == factor * 20.0
    assert found.now == 1.0


@pytest.mark.parametrize("name", OBJECTIVES)
def test_requests_are_worth_nothing_beyond_the_promise(name: Objective) -> None:
    assert worth(Outlook(NOW, aim=Aim(name)), Work(20.0, goes_on=False)).step_j == 0.0


def test_what_an_owner_declares_is_not_multiplied_for_speed() -> None:
    outlook = Outlook(NOW, aim=Aim("throughput"))
    assert worth(outlook, Work(20.0, declared_j=30.0)).step_j == 30.0


def test_the_price_later_is_that_of_the_dearest_hour_that_is_needed() -> None:
    """Three hours of work by midnight: the hours at 0.1, 0.2 and 0.25, so one at 0.25 is spared."""
    prices = curve((12, 0.3), (13, 0.1), (14, 0.4), (15, 0.2), (16, 0.5), (20, 0.25), (21, 0.6))
    work = Work(10.0, left_s=3 * 3600, until=NOW + 12 * HOUR)
    found = worth(Outlook(NOW, aim=cost(prices)), work)
    assert found.then == 0.25
    assert found.now == 0.3
    assert found.step_j == pytest.approx(10.0 * 0.25 / 0.3)
    assert found.later is not None
    assert found.later.begins_at == NOW + HOUR
    assert found.later.price == pytest.approx((0.1 + 0.2 + 0.25) / 3)


def test_a_cheap_window_is_worth_more_work_but_not_without_end() -> None:
    work = Work(10.0, left_s=20 * 3600, until=NOW + 60 * HOUR)
    now_cheap = worth(Outlook(NOW, aim=cost(DAY)), work)
    assert now_cheap.later is None
    assert now_cheap.step_j == pytest.approx(10.0 * 0.31 / 0.11)
    free = curve((0, 5.0), (12, -1.0), (13, 5.0))
    assert worth(Outlook(NOW, aim=cost(free)), work).step_j == 40.0


# -- cost and carbon ---------------------------------------------------------------------------


def test_best_effort_with_a_far_deadline_waits_and_a_promised_job_runs(rules: Settings) -> None:
    state = cluster(
        [server("s")],
        [
            effort("best", deadline_at=NOW + 24 * HOUR),
            job("promised", required_throughput=5.0, total_steps=1e6),
        ],
    )
    made = allocated(state, rules, cost())
    assert running(made.plan) == {"promised"}
    (waits,) = made.plan.waiting
    assert waits.job == "best"
    hours = "it waits for cheaper hours: 0.11 instead of 0.31 per kWh from 02:00 UTC"
    assert waits.reason == hours
    assert made.draft.problem.job_of["best"].priority == 0.0
    assert not verify(made.draft.posed, made.solved)
    assert running(allocated(state, rules, Aim()).plan) == {"promised", "best"}


def test_without_a_deadline_best_effort_waits_no_longer_than_the_horizon(rules: Settings) -> None:
    for horizon, runs in ((24 * HOUR, False), (6 * HOUR, True)):
        state = cluster([server("s")], [fresh(effort("best"))])
        made = allocated(state, rules, cost(horizon_s=horizon.total_seconds()))
        assert ("best" in running(made.plan)) is runs, horizon


def fresh(status: JobStatus) -> JobStatus:
    """The same job, come just now."""
    return replace(status, job=replace(status.job, submitted_at=NOW))


def test_a_job_that_waited_for_the_whole_horizon_runs(rules: Settings) -> None:
    """`job` makes jobs that came a day ago: that horizon is over."""
    made = allocated(cluster([server("s")], [effort("best", hours=0.1)]), rules, cost())
    assert running(made.plan) == {"best"}


@pytest.mark.parametrize(("left", "runs"), [(20, False), (16, True), (4, True), (2, True)])
def test_near_its_deadline_it_runs_whatever_the_price(
    rules: Settings, left: int, runs: bool
) -> None:
    """Cheap hours begin in 14; with 16 left, too few of them come before the latest start."""
    state = cluster([server("s")], [effort("best", hours=2, deadline_at=NOW + left * HOUR)])
    made = allocated(state, rules, cost())
    assert ("best" in running(made.plan)) is runs


def test_it_starts_in_time_on_every_deadline_and_length(rules: Settings) -> None:
    """Where a job is left waiting, what is left is half as long again as what it needs."""
    for hours in (0.2, 1.0, 3.0, 10.0):
        for left in range(1, 60, 3):
            due = NOW + left * HOUR
            state = cluster([server("s")], [effort("best", hours=hours, deadline_at=due)])
            made = posed(state, rules, cost())
            if "best" in made.later:
                assert left >= 1.5 * hours
            assert made.kinds["best"] in ("sure", "tight", "late")


def test_a_running_job_is_stopped_when_that_pays_and_goes_on_where_it_does_not(
    rules: Settings,
) -> None:
    """The cost of a stop is paid once for all the time that the job waits, here an hour."""
    due, soon = NOW + 30 * HOUR, curve((0, 0.31), (13, 0.11), (18, 0.31))
    for move_cost_j, stops in ((30_000.0, True), (5e6, False)):
        best = effort("best", at=HERE, deadline_at=due, move_cost_j=move_cost_j)
        made = allocated(cluster([server("s")], [best]), rules, cost(soon))
        assert [stop.job for stop in made.plan.stops] == (["best"] if stops else [])
        for stop in made.plan.stops:
            assert "cheaper hours" in stop.reason


def test_no_more_running_jobs_are_stopped_than_need_no_approval(rules: Settings) -> None:
    jobs = [
        effort(f"j{i}", at=((f"s{i // 4}", (i % 4,)),), deadline_at=NOW + 30 * HOUR)
        for i in range(8)
    ]
    state = cluster([server("s0"), server("s1")], jobs)
    made = allocated(state, rules, cost())
    assert len(made.plan.stops) == rules.guards.approve_stops
    assert not needs_approval(made.plan, state, rules.guards)


def test_young_pinned_and_disturbed_jobs_run_on(rules: Settings) -> None:
    due = NOW + 30 * HOUR
    young = job("young", at=HERE, ago_s=60, total_steps=36_000.0, deadline_at=due)
    assert running(allocated(cluster([server("s")], [young]), rules, cost()).plan) == {"young"}
    old = effort("old", at=HERE, deadline_at=due)
    state = cluster([server("s")], [old])
    assert running(allocated(state, rules, cost(), spent=["old"]).plan) == {"old"}


def test_in_cheap_hours_everybody_runs(rules: Settings) -> None:
    jobs = [effort("best", deadline_at=NOW + 40 * HOUR), job("other", required_throughput=5.0)]
    made = allocated(cluster([server("s")], jobs), rules, cost(DAY))
    assert running(made.plan) == {"best", "other"}


def test_promised_jobs_are_the_same_at_every_price(rules: Settings) -> None:
    """With a deadline or without: what was promised is promised for every second."""
    for due in (None, NOW + 40 * HOUR):
        promised = job("j", required_throughput=2.0, total_steps=500_000.0, deadline_at=due)
        state = cluster([server("s")], [promised])
        dear, usual, cheap = (
            posed(state, rules, aim).problem.job_of["j"] for aim in (cost(), Aim(), cost(DAY))
        )
        assert dear == usual == cheap


def test_work_of_unknown_length_is_not_shifted(rules: Settings) -> None:
    state = cluster([server("s")], [job("j"), job("k", required_throughput=5.0)])
    usual = posed(state, rules, Aim()).problem
    assert posed(state, rules, cost()).problem.sha256 == usual.sha256


def test_a_crowded_cluster_needs_more_of_the_hours(rules: Settings) -> None:
    """Alone the job fits into the cheap hours; with forty others it has to use dear ones too."""
    due = NOW + 22 * HOUR
    few = cluster([server("s")], [effort("j", hours=2, deadline_at=due)])
    others = [effort(f"o{i:02}", hours=2, deadline_at=due) for i in range(40)]
    many = cluster([server("s")], [*few.jobs, *others])
    assert "j" in posed(few, rules, cost()).later
    assert "j" not in posed(many, rules, cost()).later


def test_carbon_waits_for_cleaner_hours(rules: Settings) -> None:
    grid = curve((0, 400), (2, 90), (6, 400), kind="carbon")
    state = cluster([server("s")], [effort("j", deadline_at=NOW + 24 * HOUR)])
    (waits,) = allocated(state, rules, Aim("carbon", grid)).plan.waiting
    assert waits.reason == "it waits for cleaner hours: 90 instead of 400 g/kWh from 02:00 UTC"


def test_the_plan_says_its_objective_and_the_price_it_used(rules: Settings) -> None:
    state = cluster([server("s")], [effort("j")])
    made = allocated(state, rules, cost()).plan
    assert made.versions["objective"] == "cost"
    assert made.versions["price"]["value"] == 0.31
    assert made.versions["price"]["unit"] == "per kWh"
    assert "objective cost: 0.31 per kWh in this window (prices.csv)" in made.notes
    usual = allocated(state, rules, Aim()).plan
    assert usual.versions["objective"] == "energy"
    assert "price" not in usual.versions


# -- laws --------------------------------------------------------------------------------------

values = st.floats(0.01, 100.0)
days = st.lists(values, min_size=1, max_size=24)


@st.composite
def states(draw: st.DrawFn) -> ClusterState:
    """Up to six jobs of every kind that matters here, on room enough for all of them."""
    jobs = []
    for number in range(draw(st.integers(1, 6))):
        hours = draw(st.floats(0.1, 20.0))
        fields: dict[str, Any] = {
            "required_throughput": draw(st.sampled_from([0.0, 0.0, 1.0, 5.0, 9.0])),
            "total_steps": draw(st.sampled_from([None, 36_000.0 * hours])),
            "deadline_at": draw(st.sampled_from([None, NOW + hours * HOUR, NOW + 40 * HOUR])),
            "shareable": draw(st.booleans()),
        }
        model = draw(st.sampled_from(["ResNet-50", "LM"]))
        jobs.append(fresh(job(f"j{number}", model, **fields)))
    return cluster([server("s"), server("t"), server("k", "k80", 8)], jobs)


@how_often(deadline=None, max_examples=60)
@given(states(), values)
def test_a_flat_curve_makes_the_problem_of_energy(
    rules: Settings, state: ClusterState, value: float
) -> None:
    for points in ([(0, value)], [(hour, value) for hour in range(24)]):
        flat = posed(state, rules, cost(curve(*points)))
        assert flat.problem.sha256 == posed(state, rules, Aim()).problem.sha256
        assert not flat.later


@how_often(deadline=None, max_examples=60)
@given(states(), days, st.floats(1e-6, 1e6))
def test_only_ratios_of_a_curve_matter(
    rules: Settings, state: ClusterState, day: list[float], scale: float
) -> None:
    once = posed(state, rules, cost(curve(*enumerate(day))))
    again = posed(state, rules, cost(curve(*((h, v * scale) for h, v in enumerate(day)))))
    assert once.problem.sha256 == again.problem.sha256
    assert once.later.keys() == again.later.keys()


@how_often(deadline=None, max_examples=40)
@given(states())
def test_watts_never_draws_more_than_energy(rules: Settings, state: ClusterState) -> None:
    """Both run all jobs at their promises; only one of them pays for steps beyond."""
    plans = {}
    for name in ("watts", "energy", "throughput"):
        problem = posed(state, rules, Aim(name)).problem
        plans[name] = plan(problem, gap=0.0, time_limit_s=20.0)
        assert not verify(problem, plans[name])
    drawn = {name: made.spent["power_w"] for name, made in plans.items()}
    assert running(plans["watts"]) == running(plans["energy"])
    assert drawn["watts"] <= drawn["energy"] + 1e-6
    assert all(j.surplus_j_per_step == 0 for j in posed(state, rules, Aim("watts")).problem.jobs)


@how_often(deadline=None, max_examples=60)
@given(states(), days)
def test_promises_are_the_same_under_every_objective(
    rules: Settings, state: ClusterState, day: list[float]
) -> None:
    usual = posed(state, rules, Aim()).problem
    prices = curve(*enumerate(day))
    grid = curve(*enumerate(day), kind="carbon")
    aims = [Aim("watts"), Aim("throughput"), cost(prices), Aim("carbon", grid)]
    for aim in aims:
        made = posed(state, rules, aim)
        for mine in made.problem.jobs:
            if mine.id not in made.later:
                assert mine.required_throughput == usual.job_of[mine.id].required_throughput
                assert mine.priority == usual.job_of[mine.id].priority
            else:
                assert state.job(mine.id).job.required_throughput == 0  # type: ignore[union-attr]
