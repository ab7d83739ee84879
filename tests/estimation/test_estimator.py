"""Estimates and options: any job, any partner, honest widths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from gogh_core.domain import Descriptors
from gogh_core.errors import InvalidCatalog
from gogh_core.estimation import Catalog, Estimator
from gogh_core.estimation.facts import resolve
from tests.estimation.conftest import split

ADDED = (
    "estimate", "low", "high", "partner_estimate", "partner_low", "partner_high",
    "feasible_probability", "network",
)  # fmt: skip


def test_query_rows_keep_their_order_and_a_measured_cell_stays_measured(
    world: pa.Table, catalog: Catalog, estimator: Estimator
) -> None:
    back = world.take(
        pa.array(np.arange(world.num_rows)[::-1])
    )  # fmt: skip
    said = estimator.estimate(catalog, back)
    assert said.column_names[: len(back.column_names)] == back.column_names
    assert tuple(said.column_names[-len(ADDED) :]) == ADDED
    assert said["job_type"].to_pylist() == back["job_type"].to_pylist()
    ran = np.array(said["feasible"].to_pylist())
    real, estimate = np.array(said["throughput"]), np.array(said["estimate"])
    assert np.allclose(real[ran], estimate[ran], rtol=1e-6)
    assert set(np.array(said["network"])[ran]) == {"measured"}
    alone = np.array([name is None for name in said["partner_job_type"].to_pylist()])
    assert said["partner_estimate"].filter(pa.array(alone)).null_count == alone.sum()


def test_a_new_job_gets_p1_and_after_one_measurement_p2_that_is_narrower(
    world: pa.Table, estimator: Estimator
) -> None:
    name = world["job_type"][0].as_py()
    rest, own = split(world, name)
    before = estimator.estimate(Catalog.from_table(rest), own).to_pandas()
    assert set(before["network"]) == {"P1"}
    shown = own.slice(0, 1)
    after = estimator.estimate(Catalog.from_table(pa.concat_tables([rest, shown])), own)
    later = after.to_pandas()
    assert list(later["network"]) == ["measured"] + ["P2"] * (len(later) - 1)
    width = [np.log(t["high"] / t["low"])[1:].mean() for t in (before, later)]
    assert width[1] < width[0]
    assert (later["low"] <= later["estimate"]).all()
    assert (later["estimate"] <= later["high"]).all()


def test_an_empty_catalog_answers_from_hardware_facts_widely(estimator: Estimator) -> None:
    asked = pa.table(
        {
            "gpu_type": ["k80", "v100", "h100"],
            "job_type": ["ResNet-50 (batch size 32)"] * 3,
            "model": ["ResNet-50"] * 3,
            "batch_size": [32.0] * 3,
        }
    )
    said = estimator.estimate(Catalog.empty(), asked).to_pandas()
    assert said["estimate"].is_monotonic_increasing
    assert (said["high"] / said["low"] > 3).all()
    assert set(said["network"]) == {"P1"}


def test_one_single_row_and_one_single_family_still_answer(estimator: Estimator) -> None:
    rows = {
        "gpu_type": ["v100", "v100"], "job_type": ["X (batch size 8)", "X (batch size 16)"],
        "throughput": [4.0, 2.5],
    }  # fmt: skip
    asked = pa.table({"gpu_type": ["p100"], "job_type": ["X (batch size 32)"]})
    for count in (1, 2):
        known = Catalog.from_table(pa.table(rows).slice(0, count))
        said = estimator.estimate(known, asked).to_pandas()
        assert np.isfinite(said["estimate"][0])
        assert said["high"][0] / said["low"][0] > 1.3


def test_units_that_differ_between_families_do_not_mix(estimator: Estimator) -> None:
    rows = []
    for family, unit, scale in (("A", "steps/s", 100.0), ("B", "epochs/s", 1e-4)):
        rows += [
            {"gpu_type": g, "job_type": f"{family} (batch size {b})", "unit": unit,
             "throughput": scale * s / b}
            for b in (8, 16, 32) for g, s in (("k80", 1.0), ("v100", 4.0))
        ]  # fmt: skip
    known = Catalog.from_table(pa.Table.from_pylist(rows))
    asked = pa.Table.from_pylist(
        [{"gpu_type": "v100", "job_type": "B (batch size 64)", "unit": "epochs/s"}]
    )
    said = estimator.estimate(known, asked).to_pandas()
    assert said["estimate"][0] == pytest.approx(4e-4 / 64, rel=1.5)


def test_an_unknown_gpu_type_is_refused_and_a_known_one_is_not(
    catalog: Catalog, estimator: Estimator
) -> None:
    with pytest.raises(InvalidCatalog, match="v1000"):
        estimator.options(catalog, catalog.jobs[:2], ["v1000"])
    known = estimator.options(catalog, catalog.jobs[:2], ["h200"])
    assert set(known["network"].to_pylist()) <= {"P1", "P2"}


def test_other_names_of_a_gpu_type_mean_what_was_measured(
    catalog: Catalog, world: pa.Table, estimator: Estimator
) -> None:
    kind = catalog.columns[0].gpu_type
    rows = world.filter(pa.array([name == kind for name in world["gpu_type"].to_pylist()]))
    shouted = rows.set_column(
        rows.column_names.index("gpu_type"), "gpu_type", pa.array([kind.upper()] * rows.num_rows)
    )
    said = estimator.estimate(catalog, shouted)
    assert said["estimate"].equals(estimator.estimate(catalog, rows)["estimate"])
    assert set(said["gpu_type"].to_pylist()) == {kind.upper()}
    options = estimator.options(catalog, catalog.jobs[:2], [kind.upper()])
    assert set(options["gpu_type"].to_pylist()) == {kind.upper()}
    assert options["mean_a"].equals(estimator.options(catalog, catalog.jobs[:2], [kind])["mean_a"])


def test_options_hold_each_pair_once_with_quantiles_below_the_mean(
    catalog: Catalog, estimator: Estimator
) -> None:
    jobs = [*catalog.jobs[:4], Descriptors("never seen", 16)]
    table = estimator.options(catalog, jobs, ["a100", "t4"], gpu_counts=(1, 2), confidence=0.9)
    assert table.num_rows == 5 * 2 * 2 + 15 * 2
    frame = table.to_pandas()
    pairs = frame[frame["class_b"].notna()]
    assert not pairs.duplicated(["gpu_type", "class_a", "class_b"]).any()
    assert (frame["throughput_a"] <= frame["mean_a"] * (1 + 1e-9)).all()
    assert (frame["power_w"] > 0).all()
    assert frame["feasible_probability"].between(0, 1).all()
    same = pairs[pairs["class_a"].astype(str) == pairs["class_b"].astype(str)]
    assert np.allclose(same["throughput_a"], same["throughput_b"])


def test_nothing_to_run_or_nowhere_to_run_gives_no_options(estimator: Estimator) -> None:
    nothing = estimator.options(Catalog.empty(), [], ["v100"])
    nowhere = estimator.options(Catalog.empty(), [Descriptors("x", 8)], [])
    assert nothing.num_rows == nowhere.num_rows == 0
    assert nothing.column_names == nowhere.column_names


def test_declared_memory_decides_what_fits(estimator: Estimator) -> None:
    jobs = [
        Descriptors("small", 8, memory_bytes=3e9),
        Descriptors("large", 8, memory_bytes=14e9),
    ]
    frame = estimator.options(Catalog.empty(), jobs, ["v100"]).to_pandas()
    chance = {
        (a, None if b != b else b): p
        for a, b, p in zip(
            frame["class_a"].astype(str),
            frame["class_b"].astype(object),
            frame["feasible_probability"],
            strict=True,
        )
    }
    small, large = "small (batch size 8)", "large (batch size 8)"
    assert chance[small, small] > 0.9
    assert chance[small, large] < 0.2
    assert chance[large, large] < 0.05


def test_the_same_question_has_the_same_answer(catalog: Catalog, world: pa.Table) -> None:
    from gogh_core.estimation.registry import shipped

    version, networks = shipped()
    answers = [
        Estimator(version.id, networks).estimate(catalog.without([1]), world) for _ in range(2)
    ]
    assert answers[0].equals(answers[1])


def test_a_vision_model_on_cifar_computes_a_third_of_what_it_does_on_large_images() -> None:
    large, small = resolve("shufflenetv2/imagenet"), resolve("shufflenetv2/cifar100")
    assert large is not None
    assert small is not None
    assert small.macs == pytest.approx(0.327 * large.macs, rel=0.01)
    assert small.input_bytes < large.input_bytes / 40
    assert small.parameters == large.parameters
    assert resolve("resnet50_cifar10").macs == 1.3e9  # type: ignore[union-attr]


def test_common_names_resolve_and_strange_ones_do_not() -> None:
    assert resolve("ResNet-50").name == "resnet50"  # type: ignore[union-attr]
    assert resolve("bert_base_uncased/sentiment140").name == "bert-sentence"  # type: ignore[union-attr]
    assert resolve("Qz-11") is None


def test_the_command_writes_estimates_and_one_line_for_bad_input(
    tmp_path: Path, world: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gogh_core.cli import app
    from gogh_core.errors import InvalidInput

    monkeypatch.chdir(tmp_path)
    pq.write_table(world, "c.parquet")
    pq.write_table(world.drop_columns(["throughput", "partner_throughput"]), "q.parquet")
    runner = CliRunner()
    common = ["estimate", "--catalog", "c.parquet", "--queries", "q.parquet", "--out"]
    done = runner.invoke(app, [*common, "e.parquet", "--json"])
    assert done.exit_code == 0, done.output
    assert pq.read_table("e.parquet").num_rows == world.num_rows
    bad = runner.invoke(app, ["estimate", "--catalog", "no.csv", "--queries", "q.parquet",
                              "--out", "e.csv"])  # fmt: skip
    assert isinstance(bad.exception, InvalidInput)


def test_describe_counts_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gogh_core.estimation.describe import describe_factory

    (tmp_path / "mine_to_describe.py").write_text(
        "import torch\ndef net():\n    return torch.nn.Linear(10, 4, bias=False)\n"
    )
    monkeypatch.chdir(tmp_path)
    found = describe_factory("mine_to_describe:net", "32x10")
    assert found["parameters"] == 40
    # Forward and the gradient of the weight: twice 2 * 32 * 10 * 4.
    assert found["flops_per_step"] == pytest.approx(2 * 2 * 32 * 10 * 4)
