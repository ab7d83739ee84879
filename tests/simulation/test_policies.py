"""The same arrivals under other policies, and traces replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gogh_core.cli import app
from gogh_core.domain import Mode, Move, Placement, Plan, PowerState, Server, Slot
from gogh_core.errors import InvalidInput
from gogh_core.settings import SimulationSettings
from gogh_core.simulation import TableTruth, actions, compare, read_cluster, read_jobs, replay
from gogh_core.simulation.building import new_world
from gogh_core.simulation.comparison import run_policy
from gogh_core.simulation.planned import carry_over, planned
from gogh_core.simulation.policies import POLICIES, first_come

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


def occupied(world) -> dict[tuple[str, int], int]:
    users: dict[tuple[str, int], int] = {}
    for job in world.jobs.values():
        for place in job.places:
            for gpu in place.gpus:
                users[place.server, gpu] = users.get((place.server, gpu), 0) + 1
    return users


def test_first_come_never_shares_and_leaves_everything_on() -> None:
    world = new_world(SETTINGS)
    run_policy(world, POLICIES["fcfs"], 5400, every_s=None)
    assert set(occupied(world).values()) == {1}
    assert all(server.power is PowerState.ON for server in world.servers.values())


def test_best_fit_shares_and_switches_idle_servers_off() -> None:
    world = new_world(SETTINGS)
    run_policy(world, POLICIES["best_fit"], 5400, every_s=300)
    assert max(occupied(world).values()) == 2
    assert any(server.power is PowerState.OFF for server in world.servers.values())


def test_the_comparison_has_the_same_jobs_and_best_fit_saves_energy() -> None:
    found = compare(SETTINGS, horizon_s=3600)
    fcfs, best = found["fcfs"].metrics, found["best_fit"].metrics
    assert fcfs.submitted == best.submitted
    assert best.energy_j < 0.95 * fcfs.energy_j
    assert best.energy_per_work < 0.95 * fcfs.energy_per_work
    assert fcfs.kept_job_s / fcfs.promised_job_s == pytest.approx(fcfs.slo_attainment)
    assert compare(SETTINGS, horizon_s=3600) == found
    assert json.dumps(found.to_dict())


def test_who_was_released_only_is_placed() -> None:
    world = new_world(SETTINGS)
    world.settle()
    chosen = next(iter(world.jobs))
    first_come(world, only=lambda job: job.id == chosen)
    assert [job.id for job in world.jobs.values() if job.places] == [chosen]


@pytest.mark.parametrize("policy", ["fcfs", "best_fit", "gogh"])
def test_a_trace_is_replayed_to_its_end(policy) -> None:
    found = replay(JOBS, TABLE, SERVERS, policy, window_s=60)
    assert found.finished == found.jobs == 9
    assert found.left_out == 0
    assert found.makespan_s >= found.jct_p95_s >= found.jct_median_s > 0
    assert found.energy_j == pytest.approx(found.mean_watts * found.makespan_s)
    assert 0 < found.utilisation <= 1
    assert found == replay(JOBS, TABLE, SERVERS, policy, window_s=60)


def test_jobs_that_cannot_run_are_left_out_and_counted() -> None:
    odd = [
        *JOBS,
        {"arrival_s": 3.0, "job_type": "C"},
        {"arrival_s": 3.0, "job_type": "A", "num_gpus": 64},
    ]
    assert replay(odd, TABLE, SERVERS, "fcfs").left_out == 2
    unnamed = [{"arrival_s": 0.0, "duration_s": 60.0}]
    assert replay(unnamed, TABLE, SERVERS, "fcfs").drawn_classes == 1


def test_gogh_plans_the_embedded_cluster() -> None:
    world = new_world(SimulationSettings(servers=6, seed=2))
    run_policy(world, planned(window_s=300), 1200, every_s=300)
    assert occupied(world)
    assert max(occupied(world).values()) <= 2


@pytest.mark.parametrize("held", [0, 1])
def test_of_two_jobs_that_swap_the_replay_holds_the_one_that_the_plan_holds(held) -> None:
    world = new_world(SETTINGS)
    world.settle()
    server = next(s.server.id for s in world.servers.values() if s.server.gpus > 1)
    jobs = [
        record.id
        for record in world.jobs.values()
        if record.demand.job.mode is Mode.GANG
        and record.demand.job.gpu_counts == (1,)
        and record.demand.job.movable
    ][:2]
    slots = [Slot(server, (gpu,)) for gpu in range(2)]
    for job, slot in zip(jobs, slots, strict=True):
        actions.place(world, job, (slot,))
    swap = Plan(
        "p",
        "optimal",
        "glpk",
        0.0,
        1.0,
        1.0,
        0.0,
        placements=tuple(
            Placement(job, (slot,), None, 1.0) for job, slot in zip(jobs, slots[::-1], strict=True)
        ),
        moves=tuple(
            Move(2 if n == held else 1, jobs[n], (slots[n],), (slots[1 - n],), "", held=n == held)
            for n in range(2)
        ),
    )
    carry_over(world, swap)
    assert [world.jobs[job].places[0].slot for job in jobs] == slots[::-1]
    assert [world.jobs[job].moves for job in jobs] == [int(n != held) for n in range(2)]


def files(folder: Path) -> list[str]:
    (folder / "jobs.json").write_text(json.dumps(JOBS))
    rows = [
        {"gpu_type": "v100", "job_type": "A", "throughput": 10.0},
        {"gpu_type": "v100", "job_type": "B", "throughput": 4.0},
    ]
    (folder / "table.json").write_text(json.dumps(rows))
    (folder / "cluster.csv").write_text("id,gpu_type,gpus,base_w\nn1,Tesla V100-SXM2-16GB,4,300\n")
    return [
        "simulate",
        f"--jobs={folder / 'jobs.json'}",
        f"--throughput={folder / 'table.json'}",
        f"--cluster={folder / 'cluster.csv'}",
    ]


def test_the_command_prints_a_column_for_each_policy(tmp_path: Path) -> None:
    words = files(tmp_path)
    shown = CliRunner().invoke(app, [*words, "--policy=all"])
    assert shown.exit_code == 0, shown.output
    assert "promise kept" in shown.output
    assert "best_fit" in shown.output
    raw = CliRunner().invoke(app, [*words, "--policy=fcfs", "--json"])
    assert json.loads(raw.output)["left_out"] == 1
    bad = CliRunner().invoke(app, [*words, "--policy=lifo"])
    assert isinstance(bad.exception, InvalidInput)


LONG = [
    {"arrival_s": 0.0, "job_type": "A", "total_steps": 10.0 * 36_000},
    {"arrival_s": 36_000.0, "job_type": "A", "total_steps": 100.0},
]


@pytest.mark.parametrize("policy", ["fcfs", "best_fit", "gogh"])
def test_where_nothing_finished_there_is_no_figure_and_it_is_said_why(policy) -> None:
    cut = replay(LONG, TABLE, SERVERS, policy, max_hours=2.0)
    assert (cut.finished, cut.arrived, cut.running, cut.waiting) == (0, 1, 1, 0)
    figures = ("jct_mean_s", "jct_median_s", "jct_p95_s", "queueing_mean_s", "queueing_p95_s")
    assert [getattr(cut, name) for name in (*figures, "slo_attainment", "makespan_s")] == [None] * 7
    assert cut.simulated_s == 7200.0
    assert cut.energy_j > 0
    assert cut.note == (
        "stopped after 2 h with 2 of 2 jobs unfinished: 1 ran, 0 waited, 1 had not arrived yet "
        "(the last arrives after 10 h)"
    )
    whole = replay(LONG, TABLE, SERVERS, policy)
    assert (whole.finished, whole.note) == (2, "")
    assert whole.makespan_s == whole.simulated_s > 36_000


def test_a_figure_of_what_finished_is_told_to_be_one_of_a_part(tmp_path: Path) -> None:
    some = [*JOBS[:2], LONG[1]]
    part = replay(some, TABLE, SERVERS, "fcfs", max_hours=1.0)
    assert part.finished == 2
    assert part.jct_mean_s is not None
    assert part.makespan_s is None
    assert "1 of 3 jobs unfinished" in part.note


def test_the_command_takes_a_limit_and_prints_it(tmp_path: Path) -> None:
    words = files(tmp_path)
    (tmp_path / "jobs.json").write_text(json.dumps(LONG))
    shown = CliRunner().invoke(app, [*words, "--policy=fcfs", "--max-hours=2"])
    assert shown.exit_code == 0, shown.output
    lines = {line[:14].strip(): line[14:].strip() for line in shown.output.splitlines()}
    assert lines["JCT mean"] == lines["promise kept"] == lines["makespan"] == "-"
    assert lines["simulated"] == "2 of 2 h"
    assert "fcfs stopped after 2 h" in shown.output
    assert "--max-hours" in shown.output
    raw = CliRunner().invoke(app, [*words, "--policy=fcfs", "--max-hours=2", "--json"])
    assert json.loads(raw.output)["jct_mean_s"] is None
    default = CliRunner().invoke(app, [*words, "--policy=fcfs"])
    assert "of 1440 h" in default.output


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
