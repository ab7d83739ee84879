"""Rows of traces as what they are: parts of a GPU, CPU-only pods, gangs too large, named models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gogh_core.domain import Server
from gogh_core.errors import InvalidInput
from gogh_core.simulation import (
    LeftOut,
    TableTruth,
    TraceWorld,
    TrueRates,
    make_policy,
    read_jobs,
    replay,
    trace_world,
)

NET, OTHER = "ResNet-50 (batch size {})", "LM (batch size 5)"
TABLE = TableTruth(
    [
        {"gpu_type": kind, "job_type": name, "throughput": rate, "scale_factor": count}
        for kind, name, rate, count in (
            ("v100", NET.format(16), 10.0, 1),
            ("v100", NET.format(32), 6.0, 1),
            ("v100", NET.format(32), 11.0, 2),
            ("v100", OTHER, 4.0, 1),
            ("v100", "A3C", 5.0, 1),
        )
    ]
)
SERVERS = (Server("new", "v100", 4, 300.0),)


def traced(*rows: dict[str, Any], seed: int = 0) -> TraceWorld:
    return trace_world([{"arrival_s": 0.0, **row} for row in rows], TABLE, SERVERS, seed=seed)


GOOD = {"job_id": "good", "job_type": OTHER, "num_gpus": 1, "total_steps": 100}


def test_pods_without_a_gpu_are_left_out_by_name() -> None:
    found = traced(GOOD, {"name": "pod-7", "num_gpu": 0, "gpu_milli": 0, "duration_s": 60})
    assert found.left_out == (LeftOut("pod-7", "asks for no GPU (CPU only)"),)
    assert [demand.job.id for demand in found.demands] == ["good"]
    assert found.drawn == 0, "what is left out draws nothing"


def test_a_part_of_a_gpu_shares_and_does_its_part_of_the_work() -> None:
    pod = {"job_type": OTHER, "num_gpu": 1, "duration_s": 1000}
    part, whole = (
        demand.job
        for demand in traced({**pod, "gpu_milli": 250}, {**pod, "gpu_milli": 1000}).demands
    )
    assert part.gpu_counts == whole.gpu_counts == (1,)
    assert part.shareable is True
    assert part.total_steps == pytest.approx(4.0 * 1000 * 0.25)
    assert whole.total_steps == pytest.approx(4.0 * 1000)
    assert part.required_throughput == pytest.approx(whole.required_throughput / 4)


def test_every_row_that_cannot_run_is_named_with_the_reason() -> None:
    found = traced(
        GOOD,
        {"job_id": "wide", "job_type": OTHER, "num_gpus": 16},
        {"job_id": "odd", "num_gpus": 3},
        {"job_id": "unknown", "job_type": "GPT"},
        {"job_id": "pair", "job_type": OTHER, "num_gpus": 2},
    )
    assert {one.job: one.why for one in found.left_out} == {
        "wide": "asks for 16 GPUs, the largest server has 4",
        "odd": "no class of the table runs on 3 GPUs of this cluster's types",
        "unknown": "class GPT is not in the table",
        "pair": f"the table has no {OTHER} on 2 GPUs of this cluster's types",
    }
    with pytest.raises(InvalidInput, match="largest server has 4"):
        traced({"num_gpus": 16})


@pytest.mark.parametrize("name", ["model", "model_name"])
def test_a_named_model_takes_one_of_its_batch_sizes_by_seed(name: str) -> None:
    rows = [{name: "resnet50", "duration_s": 60, "num_gpus": 1} for _ in range(20)]
    found = traced(*rows)
    classes = [demand.job.job_class for demand in found.demands]
    assert set(classes) == {NET.format(16), NET.format(32)}
    assert (found.drawn, found.drawn_batch_sizes) == (0, 20)
    assert classes == [demand.job.job_class for demand in traced(*rows).demands]
    assert classes != [demand.job.job_class for demand in traced(*rows, seed=1).demands]
    two = traced({name: "ResNet50", "num_gpus": 2})
    assert two.demands[0].job.job_class == NET.format(32), "the one that runs on two"
    only = traced({name: "a3c", "total_steps": 70, "duration_s": 9})
    assert (only.drawn_batch_sizes, only.demands[0].job.total_steps) == (0, 70)


def test_steps_of_a_model_that_the_table_lacks_are_not_steps_of_the_drawn_one() -> None:
    found = traced({"model_name": "vgg19", "num_gpu": 2, "iterations": 606, "duration": 164})
    assert found.drawn == 1
    job = found.demands[0].job
    assert job.job_class == NET.format(32), "only this class runs on two GPUs"
    assert job.total_steps == pytest.approx(11.0 * 164)


TRACES = {
    "jobs_gavel.parquet": "gavel_msr_seed0/6c71a0",
    "jobs_philly.parquet": None,
    "jobs_alibaba_openb.parquet": "openb_default",
    "jobs_blox_pal.parquet": "blox_pal/philly/workload-1",
    "jobs_tiresias_60.parquet": None,
}


@pytest.mark.parametrize("file", TRACES)
def test_twenty_jobs_of_each_public_trace_are_replayed_to_their_end(file: str) -> None:
    folder = Path(os.environ.get("GOGH_DATA") or "nowhere")
    if not (folder / file).exists():
        pytest.skip("GOGH_DATA does not name the folder of public traces")
    truth = TableTruth.read(folder / "throughput.parquet", folder / "power.parquet")
    rows = read_jobs(folder / file, trace=TRACES[file], limit=20)
    servers = [
        Server(f"{kind}-{number}", kind, 8, 300.0)
        for kind in ("k80", "p100", "v100")
        for number in range(2)
    ]
    for name in ("fcfs", "best_fit"):
        trace = trace_world(rows, truth, servers)
        assert len(trace.demands) + len(trace.left_out) == 20
        assert len(trace.demands) >= 10, trace.left_out
        policy = make_policy(name, TrueRates(truth), window_s=300)
        found = replay(trace, policy, horizon_s=1e9)
        assert found.figures.finished == len(trace.demands), found.note
        assert found.figures.kept_share is not None
