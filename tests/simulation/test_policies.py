"""The same arrivals under other policies, and traces replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gogh_core.cli import app
from gogh_core.domain import Server
from gogh_core.errors import InvalidInput
from gogh_core.settings import SimulationSettings
from gogh_core.simulation import (
    ReplayReport,
    TableTruth,
    TrueRates,
    compare,
    make_policy,
    read_cluster,
    read_jobs,
    replay,
    trace_world,
)
from gogh_core.simulation.building import new_world
from gogh_core.simulation.comparison import COMPARED
from gogh_core.simulation.released import place_released

SETTINGS = SimulationSettings(servers=12, seed=1)
TABLE = TableTruth(
    [
        {"gpu_type": kind, "job_type": name, "throughput": rate, "scale_factor": count}
        for kind, name, rate, count in (
            ("v100", "A", 10.0, 1),
            ("v100", "A", 18.0, 2),
            ("k80", "A", 3.0, 1),
            ("v100", "B", 4.0, 1),
            ("k80", "B", 1.5, 1),
        )
    ]
    + [
        {
            "gpu_type": "v100",
            "job_type": "A",
            "partner_job_type": "B",
            "throughput": 8.0,
            "partner_throughput": 3.0,
            "scale_factor": 1,
        }
    ]
)
SERVERS = (Server("old", "k80", 2, 200.0), Server("new", "v100", 4, 300.0))
JOBS = [
    {"arrival_s": 10.0 * index, "job_type": "AB"[index % 2], "num_gpus": 1, "total_steps": 4000}
    for index in range(8)
] + [{"arrival_s": 100.0, "job_type": "A", "num_gpus": 2, "total_steps": 9000}]


def rival(name: str, rows=JOBS, *, hours: float = 1440.0, **options) -> ReplayReport:
    trace = trace_world(rows, TABLE, SERVERS, **options)
    policy = make_policy(name, TrueRates(TABLE), window_s=60)
    return replay(trace, policy, horizon_s=hours * 3600)


def test_the_comparison_has_the_same_jobs_under_every_policy() -> None:
    found = compare(SETTINGS, horizon_s=3600)
    fcfs, best = found["fcfs"].metrics, found["best_fit"].metrics
    assert len({one.metrics.submitted for one in found.outcomes}) == 1
    assert best.energy_j < fcfs.energy_j, "both switch idle servers off"
    assert {one.policy for one in found.outcomes} == set(COMPARED)
    assert fcfs.kept_job_s / fcfs.promised_job_s == pytest.approx(fcfs.slo_attainment)
    assert compare(SETTINGS, horizon_s=3600) == found
    assert json.dumps(found.to_dict())


def test_of_all_waiting_jobs_only_the_released_are_placed() -> None:
    world = new_world(SETTINGS)
    world.settle()
    chosen = next(iter(world.jobs))
    world.jobs[chosen].released = True
    place_released(world)
    assert [job.id for job in world.jobs.values() if job.places] == [chosen]


@pytest.mark.parametrize("policy", ["fcfs", "best_fit", "lucid"])
def test_a_trace_is_replayed_to_its_end(policy) -> None:
    found = rival(policy)
    figures = found.figures
    assert figures.finished == figures.jobs == 9
    assert (found.trace.left_out, found.note) == ((), "")
    assert figures.makespan_s >= figures.jct_p95_s > 0
    assert 0 < figures.utilisation <= figures.utilisation_on <= 1
    assert found.to_dict() == rival(policy).to_dict()


LONG = [
    {"arrival_s": 0.0, "job_type": "A", "total_steps": 10.0 * 36_000},
    {"arrival_s": 36_000.0, "job_type": "A", "total_steps": 100.0},
]


@pytest.mark.parametrize("policy", ["fcfs", "best_fit"])
def test_where_nothing_finished_there_is_no_figure_and_it_is_said_why(policy) -> None:
    cut = rival(policy, LONG, hours=2.0)
    assert (cut.figures.finished, cut.figures.jobs, cut.running, cut.waiting) == (0, 1, 1, 0)
    names = ("jct_mean_s", "jct_p95_s", "slowdown_mean", "fairness_worst", "makespan_s")
    assert [getattr(cut.figures, name) for name in names] == [None] * 5
    assert cut.figures.seconds == 7200.0
    assert cut.figures.energy_j > 0
    assert cut.note == (
        "stopped after 2 h with 2 of 2 jobs unfinished: 1 ran, 0 waited, 1 had not arrived yet "
        "(the last arrives after 10 h)"
    )
    whole = rival(policy, LONG)
    assert (whole.figures.finished, whole.note) == (2, "")
    assert whole.figures.makespan_s > 36_000


def test_a_figure_of_what_finished_is_told_to_be_one_of_a_part() -> None:
    part = rival("fcfs", [*JOBS[:2], LONG[1]], hours=1.0)
    assert part.figures.finished == 2
    assert part.figures.jct_mean_s is not None
    assert part.figures.makespan_s is None
    assert "1 of 3 jobs unfinished" in part.note


def test_bad_files_are_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([{"gpu_type": "abacus", "gpus": 1}]))
    with pytest.raises(InvalidInput, match="abacus"):
        read_cluster(path)
    path.write_text(json.dumps([{"gpu_type": "v100"}]))
    with pytest.raises(InvalidInput, match="gpus"):
        read_cluster(path)
    path.write_text(json.dumps([{"job_type": "A"}]))
    with pytest.raises(InvalidInput, match="arrival_s"):
        read_jobs(path)
    path.write_text(json.dumps([{"arrival_s": 1, "trace": "a"}, {"arrival_s": 1, "trace": "b"}]))
    with pytest.raises(InvalidInput, match="2 traces"):
        read_jobs(path)
    assert len(read_jobs(path, trace="b")) == 1


def test_a_fault_is_struck_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOGH_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["fault", "server_vanishes", "h100-01", "--json"])
    assert json.loads(done.output)["target"] == "h100-01"
    bad = CliRunner().invoke(app, ["fault", "server_vanishes", "nowhere"])
    assert isinstance(bad.exception, InvalidInput)
