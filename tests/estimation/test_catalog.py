"""What a catalog takes, what it refuses, and how it combines measurements."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from gogh_core.errors import InvalidCatalog, InvalidInput
from gogh_core.estimation import Catalog, load_catalog

NOW = datetime(2026, 1, 5, tzinfo=UTC)


def table(**columns: list) -> pa.Table:
    count = len(next(iter(columns.values())))
    base = {"gpu_type": ["v100"] * count, "job_type": ["A (batch size 8)"] * count}
    return pa.table({**base, **columns})


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (float("nan"), "missing"),
        (float("inf"), "infinite"),
        (-1.0, "not above 0"),
        (0.0, "not above 0"),
        (float("-inf"), "infinite"),
        (1e12, "absurd"),
        (1e-12, "absurd"),
    ],
)
def test_a_throughput_that_cannot_be_is_refused_with_its_row(value: float, word: str) -> None:
    with pytest.raises(InvalidCatalog, match=word) as caught:
        Catalog.from_table(table(throughput=[1.0, value], feasible=[True, True]))
    assert "row 2" in str(caught.value)


def test_every_fault_is_listed_at_once() -> None:
    bad = table(
        throughput=[1.0, -1.0], feasible=[True, True], batch_size=[0.0, 1.0], unit=["a/s", "b/s"]
    )
    with pytest.raises(InvalidCatalog) as caught:
        Catalog.from_table(bad)
    assert len(caught.value.faults) == 3


def test_half_a_gpu_is_refused() -> None:
    with pytest.raises(InvalidCatalog, match="whole number"):
        Catalog.from_table(table(throughput=[1.0], scale_factor=[0.5]))


def test_one_job_in_two_units_is_refused_and_not_mixed() -> None:
    both = table(throughput=[10.0, 640.0], unit=["steps/s", "samples/s"], source=["a", "b"])
    with pytest.raises(InvalidCatalog, match="several units"):
        Catalog.from_table(both)


def test_zero_without_a_feasible_column_means_it_did_not_run() -> None:
    found = Catalog.from_table(table(throughput=[0.0]))
    assert len(found.cells) == 0
    assert len(found.refused_job) == 1


def test_missing_columns_and_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidCatalog, match="throughput"):
        Catalog.from_table(pa.table({"gpu_type": ["v100"], "job_type": ["A"]}))
    with pytest.raises(InvalidInput, match="no such file"):
        load_catalog(tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(InvalidCatalog, match="not a readable"):
        load_catalog(tmp_path / "bad.parquet")


def test_parquet_and_csv_give_the_same_catalog(tmp_path: Path, world: pa.Table) -> None:
    pq.write_table(world, tmp_path / "c.parquet")
    pa_csv.write_csv(world, tmp_path / "c.csv")
    a, b = load_catalog(tmp_path / "c.parquet"), load_catalog(tmp_path / "c.csv")
    assert a.names == b.names
    assert np.allclose(a.cells.log, b.cells.log)
    assert a.jobs == b.jobs


def test_a_row_with_a_partner_measures_both_jobs() -> None:
    found = Catalog.from_table(
        table(partner_job_type=["B (batch size 4)"], throughput=[2.0], partner_throughput=[3.0])
    )
    assert found.names == ("A (batch size 8)", "B (batch size 4)")
    assert found.jobs[1].batch_size == 4
    assert sorted(np.exp(found.cells.log).round(6)) == [2.0, 3.0]


def test_repeated_measurements_are_combined_and_contradictions_widen() -> None:
    same = Catalog.from_table(table(throughput=[10.0, 10.1, 9.9, 10.0]))
    torn = Catalog.from_table(table(throughput=[10.0, 30.0, 4.0, 10.0]))
    assert len(same.cells) == len(torn.cells) == 1
    assert same.cells.count[0] == 4
    assert torn.cells.variance[0] > 5 * same.cells.variance[0]


def test_old_measurements_fade() -> None:
    times = [NOW - timedelta(days=140), NOW]
    both = table(throughput=[5.0, 10.0], time=times)
    fresh = Catalog.from_table(both, now=NOW, half_life_days=14)
    assert np.exp(fresh.cells.log[0]) == pytest.approx(10.0, rel=0.02)
    never = Catalog.from_table(both)
    assert np.exp(never.cells.log[0]) == pytest.approx(np.sqrt(50), rel=0.01)


def test_drift_is_noticed_and_the_newer_half_counts() -> None:
    times = [NOW + timedelta(hours=i) for i in range(8)]
    speeds = [10.0, 10.1, 9.9, 10.0, 5.0, 5.1, 4.9, 5.0]
    found = Catalog.from_table(table(throughput=speeds, time=times))
    assert len(found.drifts) == 1
    assert found.drifts[0].ratio == pytest.approx(0.5, rel=0.05)
    assert np.exp(found.cells.log[0]) < 6.0


def test_rows_under_a_power_limit_tell_of_power_only() -> None:
    found = Catalog.from_table(
        table(throughput=[4.0, 8.0], power_w=[100.0, 200.0], power_limit_w=[100.0, 250.0])
    )
    assert np.exp(found.cells.log) == pytest.approx([8.0])
    assert len(found.power) == 2


def test_without_hides_a_job_as_row_and_as_partner(catalog: Catalog) -> None:
    less = catalog.without([0])
    assert not (less.cells.job == 0).any()
    assert not (less.cells.partner == 0).any()
    assert not (less.refused_partner == 0).any()
