"""The bench: trials in processes of their own, one table, problems from traces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gogh_core.allocation import plan, verify
from gogh_core.bench.allocation import growth, table
from gogh_core.bench.problems import generate
from gogh_core.bench.traces import traced_jobs
from gogh_core.bench.trials import ROWS, Trial, run_trial
from gogh_core.errors import InvalidInput


def test_a_trial_is_a_verified_plan_of_another_process():
    trial = run_trial(ROWS["10/16"], "glpk", 0)
    assert trial.status == "optimal"
    assert trial.cost_w is not None
    assert trial.bound_w <= trial.cost_w
    assert trial.memory_mb > 0


def test_what_dies_dies_alone():
    trial = run_trial(replace(ROWS["10/16"], name="no such row"), "glpk", 0)
    assert trial.cost_w is None
    assert trial.status not in ("optimal", "feasible")


def test_gaps_are_to_the_best_bound_of_any_method():
    trials = [
        Trial("10/16", "glpk", 0, 1.0, 1.0, 60.0, 102.0, 100.0, 0.0, "optimal"),
        Trial("10/16", "best fit", 0, 0.1, 0.1, 60.0, 110.0, 50.0, 0.0, "feasible"),
        Trial("10/16", "naive, GLPK", 0, 30.0, 30.0, 90.0, None, 0.0, 0.0, "nothing found"),
    ]
    lines = table(trials).splitlines()
    assert "2.00%" in lines[2]
    assert "10.00%" in lines[3]
    assert "nothing found" in lines[4]


def test_growth_is_shown_over_the_rows_that_differ_in_jobs_only():
    trials = [
        Trial("100/200", "glpk", 0, 1.0, 1.0, 60.0, 1.0, 1.0, 0.0, "optimal"),
        Trial("1000/2048", "glpk", 0, 10.0, 10.0, 60.0, 1.0, 1.0, 0.0, "optimal"),
    ]
    assert growth(trials).splitlines()[-1].endswith("| 1.00 |")


TRACE = "arrival_s,num_gpus,job_type,vc\n0,1,drawn-0003,a\n5,4,drawn-0001,b\n9,64,else,a\n"


def test_a_trace_gives_sizes_models_and_owners(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(TRACE, encoding="utf-8")
    problem = generate(6, 64, 0, trace=path)
    assert {job.owner for job in problem.jobs} == {"a", "b"}
    assert {min(job.gpu_counts) for job in problem.jobs} == {1, 4, 8}
    assert "drawn-0003" in {job.job_class for job in problem.jobs}
    made = plan(problem, gap=0.02, time_limit_s=30)
    assert verify(problem, made) == []


def test_a_file_that_is_no_trace_is_refused_in_one_line(tmp_path):
    path = tmp_path / "no.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="num_gpus"):
        traced_jobs(path, 3, 0)


@pytest.mark.parametrize(
    "name", ["jobs_gavel", "jobs_philly", "jobs_alibaba_openb", "jobs_tiresias_60", "jobs_blox_pal"]
)
def test_problems_from_real_traces_are_planned_and_proven(shared_data: Path, name: str):
    problem = generate(
        40,
        64,
        1,
        throughput=shared_data / "throughput.parquet",
        trace=shared_data / f"{name}.parquet",
    )
    made = plan(problem, gap=0.01, time_limit_s=120)
    assert verify(problem, made) == []
    assert made.status == "optimal"
