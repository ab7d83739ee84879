"""Fuzz over rows and files: rows in = clean + quarantined + duplicate + late, always.

Each example is a whole ingest into a store that earlier examples have filled, so that duplicates
and late rows come by themselves. The tables are counted too, not only the ledger.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gogh_core.store import Store
from tests.telemetry.world import (
    HEADER,
    adds_up,
    at,
    opened,
    put,
    rows_of,
    stamp,
    state_of,
    take_in,
)

CELL = st.one_of(
    st.sampled_from(
        ["", "[N/A]", "nan", "inf", "-1", "0", "1e308", "71 W", "34 %", "x", '"', "0x4"]
    ),
    st.floats(allow_nan=True, allow_infinity=True).map(str),
    st.integers(-(2**70), 2**70).map(str),
)
TIME = st.one_of(st.integers(-50, 4000).map(stamp), st.integers(0, 2**45).map(str), CELL)
ODD = st.tuples(
    TIME,
    st.sampled_from(["s1", "s2", "nobody", ""]),
    CELL | st.sampled_from(["0", "1"]),
    st.sampled_from(["v100", "t4", "h999", ""]),
    CELL,
    CELL,
    CELL,
).map(",".join)
GOOD = st.tuples(st.integers(0, 2990), st.sampled_from(["0", "1"])).map(
    lambda made: f"{stamp(made[0])},s1,{made[1]},v100,100.5,{1000 + 100 * made[0]},0.5"
)
TEXT = st.text(max_size=30).map(lambda text: text.replace("\n", " "))
FILE = st.lists(st.one_of(GOOD, GOOD, ODD, TEXT), max_size=12) | st.lists(GOOD, max_size=12)
TABLES = ("gpu_samples", "quarantine", "late_rows")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    opened(folder, state_of([("s1", "v100", 2), ("s2", "t4", 2)]))
    return folder


def _one_ingest(home: Path, files: list[list[str]]) -> None:
    settings_, store = opened(home)
    before = _counted(store)
    number = len(list((settings_.spool / "gpu").glob("*")))
    expected = 0
    for index, lines in enumerate(files, number):
        body = "\n".join([HEADER, *lines, ""]).encode("utf-8", "surrogatepass")
        put(settings_, f"gpu/f{index}.csv", body)
        expected += sum(bool(line.rstrip(b"\r").strip(b"\0").strip()) for line in _lines(body))
    [source] = take_in(settings_, store, at(3000)).sources
    assert source.rows_in == expected
    assert source.rows_in == (
        source.rows_clean + source.rows_quarantined + source.rows_duplicate + source.rows_late
    )
    assert adds_up(store)
    clean, aside, late = (now - was for now, was in zip(_counted(store), before, strict=True))
    assert (clean, aside, late) == (source.rows_clean, source.rows_quarantined, source.rows_late)
    assert not take_in(settings_, store, at(3000)).sources, "a second ingest found something new"


def _lines(body: bytes) -> list[bytes]:
    return body.split(b"\n")[1:]


def _counted(store: Store) -> tuple[int, ...]:
    """Rows of the tables themselves, to compare with what the ledger says."""
    return tuple(int(rows_of(store, f"SELECT count(*) FROM {name}")[0][0]) for name in TABLES)


FILES = st.lists(FILE, min_size=1, max_size=4)
QUIET = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)


@pytest.mark.e2e
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(files=FILES)
def test_the_rows_always_add_up(home: Path, files: list[list[str]]) -> None:
    _one_ingest(home, files)


@pytest.mark.soak
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(files=FILES)
def test_the_rows_of_many_files_always_add_up(home: Path, files: list[list[str]]) -> None:
    _one_ingest(home, files)
