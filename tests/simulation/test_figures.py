"""The figures of a run say what happened: causes, fairness, slowdown, and the size of the bench."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from gogh_core.cli import app
from gogh_core.domain import Descriptors, Job, Server, Slot
from gogh_core.simulation import Board, Figures, Run, TableTruth, crowd, figures_of
from gogh_core.simulation.arrivals import Demand, ListedSource
from gogh_core.simulation.world import World

START = datetime(2026, 1, 5, tzinfo=UTC)
TRUTH = TableTruth(
    [
        {"gpu_type": "v100", "job_type": "A", "throughput": 10.0, "scale_factor": 1},
        {"gpu_type": "k80", "job_type": "A", "throughput": 2.0, "scale_factor": 1},
    ]
)
NEW, OLD = Server("new", "v100", 1, 300.0), Server("old", "k80", 1, 200.0)


def job(name: str, arrives_s: float, steps: float, required: float = 5.0) -> Demand:
    told = Job(name, Descriptors("A"), START, required_throughput=required, total_steps=steps)
    return Demand(told, arrives_s)


class Script:
    """Does at each window what stands in its script."""

    name, every_s, on_events = "script", 100.0, False

    def __init__(self, **orders: list[tuple[str, ...]]) -> None:
        self._orders = orders

    def act(self, board: Board, why: str) -> None:
        for do, *words in self._orders.get(f"at_{board.now_s:.0f}", []):
            if do in ("on", "off"):
                board.switch(words[0], on=do == "on")
            elif do == "stop":
                board.stop(words[0])
            else:
                getattr(board, do)(words[0], (Slot(words[1], (0,)),))


def ran(script: Script, *demands: Demand, servers=(NEW, OLD), until_s: float = 10_000) -> Figures:
    world = World(servers, TRUTH, ListedSource(demands), start=START, seed=0, alike=True)
    Run(world, script).until(until_s, to_the_end=True)
    return figures_of(world)


def causes(figures: Figures) -> dict[str, float]:
    return {name: round(s, 3) for name, s in figures.unkept_job_s.items() if s}


def test_a_job_that_comes_between_windows_waits_for_the_next_and_then_starts() -> None:
    found = ran(Script(at_100=[("place", "a", "new")]), job("a", 30, 1000))
    assert causes(found) == {"window": 70, "starting": 20}
    assert found.kept_job_s == pytest.approx(100)
    assert found.jct_mean_s == pytest.approx(190)
    assert found.queueing_mean_s == pytest.approx(70)
    assert found.makespan_s == pytest.approx(220)


def test_a_job_that_a_window_leaves_waiting_was_planned_to_wait() -> None:
    found = ran(Script(at_200=[("place", "a", "new")]), job("a", 30, 1000))
    assert causes(found) == {"window": 70, "planned": 100, "starting": 20}


def test_a_server_that_is_off_has_to_switch_on_first() -> None:
    found = ran(Script(at_0=[("off", "new")], at_100=[("place", "a", "new")]), job("a", 0, 1000))
    assert causes(found) == {"planned": 100, "switching": 90, "starting": 20}


def test_a_slow_gpu_is_too_slow_and_moving_to_a_fast_one_costs_its_time() -> None:
    script = Script(at_0=[("place", "a", "old")], at_100=[("move", "a", "new")])
    found = ran(script, job("a", 0, 1000))
    assert causes(found) == {"starting": 20, "slow": 80, "moving": 60}
    assert found.kept_job_s == pytest.approx((1000 - 160) / 10)
    assert (found.moves_per_job, found.stops_per_job, found.lost_work_s) == (1, 0, 0)


def test_a_stop_is_planned_and_counted() -> None:
    script = Script(
        at_0=[("place", "a", "new")], at_100=[("stop", "a")], at_300=[("place", "a", "new")]
    )
    found = ran(script, job("a", 0, 2000))
    assert causes(found) == {"starting": 40, "planned": 200}
    assert found.stops_per_job == 1


def test_slowdown_and_fairness_are_against_the_time_alone() -> None:
    # The middling GPU of the two is the faster one: alone, 1000 steps take 100 s.
    both = Script(at_0=[("place", "a", "new"), ("place", "b", "old")])
    found = ran(both, job("a", 0, 1000), job("b", 0, 1000))
    assert found.jct_mean_s == pytest.approx((120 + 520) / 2)
    assert found.slowdown_mean == pytest.approx((1.2 + 5.2) / 2)
    # Two GPUs for at most two jobs of one GPU each: a fair share is a whole GPU.
    assert found.fairness_worst == pytest.approx(5.2)
    one = Script(at_0=[("place", "a", "new")], at_200=[("place", "b", "new")])
    alone = ran(one, job("a", 0, 1000), job("b", 0, 1000), servers=(NEW,))
    # One GPU: two jobs until 120 s, then one, until 320 s: b saw 1.375 jobs on average.
    assert alone.fairness_worst == pytest.approx(320 / (100 * (2 * 120 + 200) / 320))


def test_energy_and_utilisation_of_a_case_that_can_be_done_by_hand() -> None:
    found = ran(Script(at_0=[("place", "a", "new")]), job("a", 0, 1000), servers=(NEW,))
    idle_w, busy_w = 40.0, 0.65 * 300.0
    assert found.energy_j == pytest.approx(300 * 120 + idle_w * 20 + busy_w * 100)
    assert found.utilisation == found.utilisation_on == pytest.approx(100 / 120)
    assert found.work_s == pytest.approx(100)
    assert found.work_per_on_gpu_s == pytest.approx(100 / 120)
    assert found.joules_per_work_s == pytest.approx(found.energy_j / 100)


def test_a_drawn_crowd_brings_the_load_it_was_asked_for_and_the_bench_runs_it() -> None:
    world, last_s = crowd(300, 6, load=2.0)
    again, _ = crowd(300, 6, load=2.0)
    assert world.coming == again.coming
    assert last_s == pytest.approx(crowd(300, 6, load=1.0)[1] / 2)
    shown = CliRunner().invoke(app, ["bench", "replay", "--jobs=320", "--gpus=768", "--json"])
    assert shown.exit_code == 0, shown.output
    runs = json.loads(shown.output)["runs"]
    assert [row["finished"] for row in runs] == [20, 80, 320]
