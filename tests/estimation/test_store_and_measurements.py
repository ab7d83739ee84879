"""The catalog of a real store, and the figures on real measurements (soak)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gogh_core.estimation import Catalog
from gogh_core.settings import Settings

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


def observation(number: int, job: str, throughput: float, **more: object) -> dict[str, object]:
    return {
        "observation_id": f"o{number}", "job_id": f"j{number}", "job_class": job,
        "gpu_type": "v100", "gpus": 1, "partner_job_id": None, "partner_class": None,
        "server_id": "s1", "gpu_indices": [0], "window_start": NOW - timedelta(minutes=10),
        "window_end": NOW - timedelta(minutes=5), "throughput": throughput,
        "throughput_spread": 0.1, "samples": 20, "unit": "steps/s", "power_w": 150.0,
        "energy_j": 1.0, "power_estimated": False, "power_limit_w": None, "computed_at": NOW,
        **more,
    }  # fmt: skip


def test_the_stores_observations_become_a_catalog(settings: Settings) -> None:
    from gogh_core.store import Store

    store = Store(settings)
    store.migrate()
    with store.read() as connection:
        schema = connection.execute("SELECT * FROM observations LIMIT 0").to_arrow_table().schema
    rows = [
        observation(1, "A (batch size 8)", 4.0),
        observation(2, "A (batch size 8)", 4.2),
        observation(3, "A (batch size 8)", 2.0, partner_class="B (batch size 4)"),
        observation(4, "B (batch size 4)", 7.0, partner_class="A (batch size 8)"),
        observation(
            5, "A (batch size 8)", 9e4, unit="samples/h", window_end=NOW - timedelta(days=9)
        ),
        observation(6, "A (batch size 8)", 1e30),
    ]
    store.append("observations", pa.Table.from_pylist(rows, schema=schema))
    found = Catalog.from_store(store, now=NOW, half_life_days=14)
    assert found.names == ("A (batch size 8)", "B (batch size 4)")
    assert len(found.cells) == 3
    assert len(found.power) == 4


def gavel(folder: Path) -> Catalog:
    table = pq.read_table(folder / "throughput.parquet")
    one = pc.and_(pc.equal(table["source"], "gavel_simulation"), pc.equal(table["scale_factor"], 1))
    return Catalog.from_table(table.filter(one))


@pytest.mark.soak
def test_left_out_jobs_and_families_are_told_better_than_the_bar(shared_data: Path) -> None:
    from gogh_core.estimation.evaluation import (
        accuracy,
        network_method,
        simple_method,
        summary,
    )
    from gogh_core.estimation.registry import shipped

    catalog = gavel(shared_data)
    _, networks = shipped()
    bar = "median and all siblings"
    methods = [
        simple_method(bar),
        network_method("name", networks, use_facts=False),
        network_method("facts", networks, use_facts=True),
    ]
    table = summary(accuracy(catalog, methods, partners=1))
    nmae = table.set_index(["split", "method", "task"])["nmae"]
    change = nmae / nmae.xs(bar, level="method").reindex(nmae.index.droplevel("method")).to_numpy()
    for tag in ("name", "facts"):
        assert (change["LOJO", tag] < 0.9 + 0.02).all()
        assert change["LOJO", tag].mean() < 0.8
    assert (change["LOMO", "name"] < 1.03).all()
    assert change["LOMO", "name", "P2 alone"] < 0.96
    assert change["LOMO", "name", "P2 pairs"] < 0.96
    assert change["LOMO", "facts", "P2 alone"] < 0.8
    assert change["LOMO", "facts", "P1 shape"] < 0.82
    assert nmae["LOMO", "facts", "P1 alone"] < 0.476
    held = table[table["method"] != bar].dropna(subset=["coverage"])
    assert held["coverage"].between(0.65, 0.92).all()
    for _, mine in held.groupby("method"):
        inside = float((mine["coverage"] * mine["cells"]).sum() / mine["cells"].sum())
        assert 0.75 <= inside <= 0.85


@pytest.mark.soak
def test_a_catalog_of_five_million_rows_is_read_and_answers(tmp_path: Path) -> None:
    """Four numbers of each of a thousand classes on six GPU types, over and over."""
    from gogh_core.estimation import Estimator

    rows = 5_000_000
    rng = np.random.default_rng(0)
    kinds = np.array(["k80", "p100", "v100", "t4", "a100", "h100"])
    classes = np.array([f"model-{i // 5} (batch size {8 * 2 ** (i % 5)})" for i in range(1000)])
    who, where = rng.integers(0, 1000, rows), rng.integers(0, 6, rows)
    speed = (1 + where) * 50.0 / (1 + who % 5) * np.exp(rng.normal(0, 0.05, rows))
    table = pa.table(
        {
            "gpu_type": pa.DictionaryArray.from_arrays(where.astype(np.int8), kinds),
            "job_type": pa.DictionaryArray.from_arrays(who.astype(np.int16), classes),
            "throughput": speed,
        }
    )
    catalog = Catalog.from_table(table)
    assert catalog.cells.count.sum() == rows
    said = Estimator().estimate(catalog, pa.table({"gpu_type": ["v100"], "job_type": ["new"]}))
    assert np.isfinite(said["estimate"][0].as_py())


@pytest.mark.soak
def test_infeasible_pairs_of_known_families_are_found(shared_data: Path) -> None:
    from gogh_core.estimation.memory_evaluation import feasibility

    assert feasibility(gavel(shared_data), split="LOJO")["found"] >= 0.85


@pytest.mark.soak
def test_watts_from_a_sibling_and_from_another_gpu(shared_data: Path) -> None:
    import pandas as pd

    from gogh_core.estimation.power_evaluation import power_accuracy, power_catalog

    power = pd.read_parquet(shared_data / "power.parquet")
    found = power_accuracy(power_catalog(power[power["source"] == "zeus_nsdi23"]), every=6)
    assert found["sibling_error_w"] < 6
    assert found["other_error_w"] < 20
    assert found["sibling_excess_energy"] < 0.05


def test_a_column_of_the_real_table_is_read(shared_data: Path) -> None:
    catalog = gavel(shared_data)
    assert len(catalog.names) == 26
    assert [column.gpu_type for column in catalog.columns] == ["k80", "p100", "v100"]
    assert np.isfinite(catalog.cells.log).all()
