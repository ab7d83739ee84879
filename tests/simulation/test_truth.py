"""The ground truth behaves like GPUs do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gogh_core import hardware
from gogh_core.errors import InvalidCatalog, InvalidInput
from gogh_core.settings import SimulationSettings
from gogh_core.simulation.building import new_world
from gogh_core.simulation.classes import CLASSES
from gogh_core.simulation.table import TableTruth
from gogh_core.simulation.truth import PhysicalTruth

TYPES = ("k80", "p100", "v100", "t4", "a100", "h100")
TRUTH = PhysicalTruth(CLASSES, 0)


def pairs():
    for gpu_type in TYPES:
        for first in CLASSES:
            for second in CLASSES:
                yield gpu_type, first, second


def test_sharing_slows_both_down_and_draws_at_least_about_what_one_draws() -> None:
    seen = 0
    for gpu_type, first, second in pairs():
        both = TRUTH.run(gpu_type, 1, (first, second))
        if both is None:
            continue
        seen += 1
        alone = [TRUTH.run(gpu_type, 1, (name,)) for name in (first, second)]
        for run, rate in zip(alone, both.throughput, strict=True):
            assert run is not None
            assert 0 < rate < run.throughput[0]
        assert both.power_w <= hardware.get(gpu_type).max_w
        # switching between the two takes time in which neither draws much
        assert both.power_w >= 0.94 * min(run.power_w for run in alone if run)
    assert seen > 1000


def test_memory_may_not_suffice() -> None:
    assert TRUTH.run("k80", 1, ("Llama-7B serving (batch size 4)",)) is None
    assert TRUTH.run("a100", 1, ("Llama-7B serving (batch size 4)",)) is not None
    refused = [key for key in pairs() if TRUTH.run(key[0], 1, key[1:]) is None]
    assert 0.02 < len(refused) / (len(TYPES) * len(CLASSES) ** 2) < 0.5


def test_newer_gpus_are_faster_and_not_by_the_same_factor_for_all() -> None:
    ratios = []
    for name in CLASSES:
        old, new = TRUTH.run("k80", 1, (name,)), TRUTH.run("h100", 1, (name,))
        if old and new:
            ratios.append(new.throughput[0] / old.throughput[0])
    assert min(ratios) > 1
    assert max(ratios) / min(ratios) > 4


def test_a_gang_is_faster_than_one_gpu_and_slower_than_the_sum() -> None:
    for name in CLASSES:
        one, two = TRUTH.run("h100", 1, (name,)), TRUTH.run("h100", 2, (name,))
        assert one is not None
        assert two is not None
        assert one.throughput[0] < two.throughput[0] <= 2 * one.throughput[0]


def test_a_power_limit_saves_more_power_than_throughput() -> None:
    free = TRUTH.run("v100", 1, ("VGG-16 (batch size 64)",))
    held = TRUTH.run("v100", 1, ("VGG-16 (batch size 64)",), 180.0)
    assert free is not None
    assert held is not None
    assert held.power_w == 180.0 < free.power_w
    assert held.power_w / free.power_w < held.throughput[0] / free.throughput[0] < 1


def test_seeds_differ_and_each_is_the_same_again() -> None:
    name = ("ResNet-50 (batch size 64)",)
    first, again, other = (PhysicalTruth(CLASSES, seed).run("t4", 1, name) for seed in (1, 1, 2))
    assert first == again != other


ROWS = [
    {"gpu_type": "v100", "job_type": "A (batch size 4)", "throughput": 10.0, "scale_factor": 1},
    {"gpu_type": "k80", "job_type": "A (batch size 4)", "throughput": 2.0, "scale_factor": 1},
    {"gpu_type": "v100", "job_type": "B", "throughput": 5.0, "scale_factor": 1},
    {
        "gpu_type": "v100",
        "job_type": "A (batch size 4)",
        "partner_job_type": "B",
        "throughput": 6.0,
        "partner_throughput": 3.0,
        "scale_factor": 1,
    },
    {
        "gpu_type": "k80",
        "job_type": "A (batch size 4)",
        "partner_job_type": "B",
        "throughput": 0.0,
        "partner_throughput": 0.0,
        "feasible": False,
    },
]


def test_a_table_says_what_was_measured_in_both_directions_and_nothing_else() -> None:
    truth = TableTruth(ROWS)
    assert truth.gpu_types == ("v100", "k80")
    both = truth.run("v100", 1, ("B", "A (batch size 4)"))
    assert both is not None
    assert both.throughput == (3.0, 6.0)
    assert truth.run("k80", 1, ("A (batch size 4)", "B")) is None
    assert truth.run("k80", 1, ("B",)) is None
    assert truth.run("v100", 2, ("B",)) is None


def test_a_power_table_is_used_where_it_knows_the_model() -> None:
    power = [
        {
            "gpu_type": "v100",
            "model": "B",
            "batch_size": 1,
            "power_limit_w": 300.0,
            "avg_power_w": 120.0,
        }
    ]
    plain = TableTruth(ROWS).run("v100", 1, ("B",))
    known = TableTruth(ROWS, power).run("v100", 1, ("B",))
    assert plain is not None
    assert known is not None
    assert known.power_w == pytest.approx(120.0)
    assert plain.power_w == pytest.approx(195.0)


def test_a_cluster_runs_on_a_table(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(ROWS))
    world = new_world(SimulationSettings(throughput_table=path, servers=4))
    assert {record.server.gpu_type for record in world.servers.values()} == {"v100", "k80"}
    world.settle()
    assert {job.demand.job.job_class for job in world.jobs.values()} == {"A (batch size 4)", "B"}


def test_a_bad_table_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    with pytest.raises(InvalidInput, match="no such file"):
        TableTruth.read(path)
    path.write_text("gpu_type,throughput\nv100,3\n")
    with pytest.raises(InvalidCatalog, match="job_type"):
        TableTruth.read(path)
    path.write_text("gpu_type,job_type,throughput\nabacus,A,3\n")
    with pytest.raises(InvalidCatalog, match="known GPU type"):
        TableTruth.read(path)


def test_the_real_table_is_a_truth(shared_data: Path) -> None:
    truth = TableTruth.read(shared_data / "throughput.parquet", shared_data / "power.parquet")
    assert set(truth.gpu_types) == {"k80", "p100", "v100"}
    world = new_world(
        SimulationSettings(throughput_table=shared_data / "throughput.parquet", servers=6)
    )
    world.settle()
    assert world.jobs
