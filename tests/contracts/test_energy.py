"""The energy counter: never backwards, never too fast, and in step with the integral of power."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gogh_core.contracts import Suite, Verdict, check_batch, load_suites
from gogh_core.store import Store
from tests.telemetry.world import at, opened, state_of

SECONDS = 90


@pytest.fixture(scope="module")
def opened_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Suite]:
    home: Path = tmp_path_factory.mktemp("energy")
    settings, store = opened(home, state_of([("s1", "v100", 1)]))
    return store, load_suites(settings)["gpu_samples"]


def judged(
    opened_store: tuple[Store, Suite], energy: list[float | None], power: float = 100.0
) -> Verdict:
    """The verdict on one GPU that reports once a second."""
    store, suite = opened_store
    count = len(energy)
    times: list[datetime] = [at(second) for second in range(count)]
    rows = pa.table(
        {
            "row_id": pa.array(range(count), pa.int64()),
            "part": pa.array(np.zeros(count, np.int32)),
            "line": pa.array(range(count), pa.int64()),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "server_id": ["s1"] * count,
            "gpu_index": pa.array([0] * count, pa.int32()),
            "gpu_type": ["v100"] * count,
            "power_w": pa.array([power] * count, pa.float64()),
            "energy_j": pa.array(energy, pa.float64()),
            **{
                name: pa.nulls(count, pa.float64())
                for name in ("utilisation", "memory_used_mb", "temperature_c", "sm_clock_mhz")
            },
            "throttle_reasons": pa.nulls(count, pa.int64()),
            "processes": pa.nulls(count, pa.int32()),
            "parse_error": pa.nulls(count, pa.string()),
            "raw": pa.nulls(count, pa.string()),
        }
    )
    with store.write() as connection:
        return check_batch(connection, suite, rows, now=at(count))


def steady(watts: float = 100.0) -> list[float | None]:
    return [1000.0 + watts * second for second in range(SECONDS)]


def bad_rows(verdict: Verdict) -> list[int]:
    return sorted(set(verdict.failures["row_id"].to_pylist()))


def test_a_counter_that_agrees_with_power_passes(opened_store: tuple[Store, Suite]) -> None:
    verdict = judged(opened_store, steady())
    assert not bad_rows(verdict)
    assert not verdict.warnings


@pytest.mark.parametrize("watts", [60.0, 160.0])
def test_a_counter_that_disagrees_with_the_integral_is_told(
    opened_store: tuple[Store, Suite], watts: float
) -> None:
    verdict = judged(opened_store, steady(watts))
    assert not bad_rows(verdict)
    assert any("agrees with the integral of power" in warning for warning in verdict.warnings)


def test_one_wrong_counter_is_the_only_row_held(opened_store: tuple[Store, Suite]) -> None:
    """A spike: the row after it goes on from the one before it, so the spike itself is wrong."""
    energy = steady()
    energy[40] = 9_000_000.0
    verdict = judged(opened_store, energy)
    assert bad_rows(verdict) == [40]
    assert not any("integral" in warning for warning in verdict.warnings)


def test_a_counter_that_runs_back_is_held(opened_store: tuple[Store, Suite]) -> None:
    energy = steady()
    energy[40] = 10.0
    assert bad_rows(judged(opened_store, energy)) == [40]


def test_a_counter_that_begins_anew_costs_one_row(opened_store: tuple[Store, Suite]) -> None:
    energy = steady()
    energy[50:] = [100.0 * second for second in range(SECONDS - 50)]
    assert bad_rows(judged(opened_store, energy)) == [50]


def test_a_counter_that_jumps_ahead_is_held(opened_store: tuple[Store, Suite]) -> None:
    energy = steady()
    energy[50:] = [9_000_000.0 + 100.0 * second for second in range(SECONDS - 50)]
    assert bad_rows(judged(opened_store, energy)) == [50]


def test_a_gpu_without_a_counter_passes(opened_store: tuple[Store, Suite]) -> None:
    assert not bad_rows(judged(opened_store, [None] * SECONDS))
