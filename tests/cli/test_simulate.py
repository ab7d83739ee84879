"""`gogh simulate`: any trace, table and cluster, under any policy, with learning in the loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gogh_core.cli import app
from gogh_core.cli.simulation_runs import chosen_policies
from gogh_core.errors import InvalidInput
from gogh_core.simulation import POLICIES

JOBS = [
    {"arrival_s": 40.0 * index, "job_type": "AB"[index % 2], "num_gpus": 1, "total_steps": 4000}
    for index in range(8)
] + [{"job_id": "wide", "arrival_s": 100.0, "job_type": "A", "num_gpus": 9, "total_steps": 9000}]
TABLE = [
    {"gpu_type": "v100", "job_type": "A", "throughput": 10.0},
    {"gpu_type": "k80", "job_type": "A", "throughput": 3.0},
    {"gpu_type": "v100", "job_type": "B", "throughput": 4.0},
    {"gpu_type": "v100", "job_type": "A", "throughput": 8.0, "partner_job_type": "B",
     "partner_throughput": 3.0},
]  # fmt: skip


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "jobs.json").write_text(json.dumps(JOBS))
    (tmp_path / "table.json").write_text(json.dumps(TABLE))
    (tmp_path / "cluster.csv").write_text(
        "id,gpu_type,gpus,base_w\nn1,Tesla V100-SXM2-16GB,4,300\nn2,k80,4,200\n"
    )
    return [
        "simulate",
        f"--jobs={tmp_path / 'jobs.json'}",
        f"--throughput={tmp_path / 'table.json'}",
        f"--cluster={tmp_path / 'cluster.csv'}",
    ]


def asked(words: list[str], *more: str) -> Any:
    done = CliRunner().invoke(app, [*words, *more, "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


@pytest.mark.parametrize("estimates", ["learned", "true"])
def test_gogh_replays_a_trace_with_learned_and_with_true_estimates(words, estimates) -> None:
    found = asked(words, "--policy=gogh", f"--estimates={estimates}")
    assert (found["policy"], found["estimates"]) == ("gogh", estimates)
    assert found["finished"] == found["trace_jobs"] == 8
    assert found["joules_per_work_s"] == pytest.approx(found["energy_j"] / found["work_s"])
    lost = sum(found["unkept_job_s"].values())
    assert lost == pytest.approx(found["promised_job_s"] - found["kept_job_s"])
    why = "asks for 9 GPUs, the largest server has 4"
    assert found["left_out"] == [{"job": "wide", "why": why}]
    assert found == asked(words, "--policy=gogh", f"--estimates={estimates}"), "the same again"


def test_several_policies_are_a_column_each(words) -> None:
    shown = CliRunner().invoke(app, [*words, "--policy=fcfs,best_fit"])
    assert shown.exit_code == 0, shown.output
    lines = {line[:18].strip(): line[18:].split() for line in shown.output.splitlines()}
    assert lines[""] == ["fcfs", "best_fit"]
    for label in ("J per work-second", "energy, kWh", "promises kept", "JCT p95, h",
                  "queueing mean, h", "slowdown mean", "utilisation, on", "fairness worst",
                  "moves per job", "lost work, min", "planned"):  # fmt: skip
        assert len(lines[label]) == 2, label
    assert "1 left out, asks for 9 GPUs, the largest server has 4: wide" in shown.output
    raw = asked(words, "--policy=fcfs,best_fit")
    assert [(one["policy"], one["estimates"]) for one in raw] == [
        ("fcfs", "true"),
        ("best_fit", "true"),
    ]


def test_policies_are_chosen_by_name() -> None:
    assert chosen_policies("all") == [*POLICIES, "gogh"]
    assert chosen_policies("lucid, gogh,lucid") == ["lucid", "gogh"]
    with pytest.raises(InvalidInput, match="lifo"):
        chosen_policies("fcfs,lifo")


def test_unknown_estimates_are_refused(words) -> None:
    bad = CliRunner().invoke(app, [*words, "--estimates=guessed"])
    assert isinstance(bad.exception, InvalidInput)


def test_it_stops_after_so_many_windows_and_says_so(words) -> None:
    found = asked(words, "--policy=fcfs", "--windows=1", "--window-s=60")
    assert found["seconds"] == 60
    assert (found["jobs"], found["trace_jobs"], found["jct_mean_s"]) == (2, 8, None)
    shown = CliRunner().invoke(app, [*words, "--policy=fcfs", "--max-hours=0.01"])
    lines = {line[:18].strip(): line[18:].strip() for line in shown.output.splitlines()}
    assert lines["JCT mean, h"] == lines["makespan, h"] == "-"
    assert "fcfs stopped after 0.01 h with 8 of 8 jobs unfinished" in shown.output


def test_a_replay_is_kept_in_a_file_and_that_of_another_trace_is_refused(
    words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gogh_core.cli.simulation_runs.SAVE_EVERY_S", 0.0)
    whole = asked(words, "--policy=gogh")
    file = tmp_path / "run.json"
    asked(words, "--policy=gogh", "--windows=2", f"--resume={file}")
    assert json.loads(file.read_text())["policy"]["knowledge"]["rows"], "it has learned by then"
    assert asked(words, "--policy=gogh", f"--resume={file}") == whole
    (tmp_path / "jobs.json").write_text(json.dumps(JOBS[1:]))
    other = CliRunner().invoke(app, [*words, "--policy=gogh", f"--resume={file}"])
    assert isinstance(other.exception, InvalidInput)
