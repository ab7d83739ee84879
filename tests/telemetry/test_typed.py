"""The short way of reading samples gives what the long way gives, or nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gogh_core.telemetry.parse import Limits, Parser, Piece, pieces
from gogh_core.telemetry.shapes import SHAPES
from gogh_core.telemetry.spool import Found
from gogh_core.telemetry.text import Block, csv_cells
from gogh_core.telemetry.typed import sample_rows
from tests.telemetry.world import stamp

COLUMNS = "ts,server_id,gpu_index,gpu_type,power_w,energy_j,utilisation.gpu,throttle_reasons"
HEADER = COLUMNS.replace("utilisation.gpu", "utilization.gpu")
NUMBER = st.one_of(
    st.floats(-1e6, 1e9, allow_nan=False).map(repr),
    st.integers(-10, 10**9).map(str),
    st.sampled_from(["", "[N/A]", " 7 ", "1.", ".5", "1e3", "-0.0", "5e-324"]),
)
WHOLE = st.integers(0, 2**40).map(str) | st.sampled_from(["", "3.0", "1.5", "-1"])
NAME = st.sampled_from(["s1", "n-2.rack", "", "Tesla V100-SXM2-32GB", "na", "None", "s 1"])
WRITTEN = st.integers(0, 10**6).map(lambda second: stamp(second / 7))
EPOCH = st.floats(2e8, 4e9).map(lambda second: f"{second:.3f}") | st.integers(
    10**8, 10**10 - 1
).map(str)


def row(time: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    index = st.integers(0, 9).map(str)
    return st.tuples(time, NAME, index, NAME, NUMBER, NUMBER, NUMBER, WHOLE).map(",".join)


def block(lines: list[str]) -> Block:
    data = ("\n".join(lines) + "\n").encode()
    return Block(data, 0, len(data), 2, len(lines))


def long_way(parser: Parser, lines: list[str]) -> pa.Table:
    cells = csv_cells(block(lines), HEADER, SHAPES["gpu_samples"], "f")
    return parser.rows([Piece("f", "gpu_samples", cells, "", "", "", default_name="me")])


def short_way(lines: list[str]) -> pa.Table | None:
    return sample_rows(block(lines), HEADER, SHAPES["gpu_samples"], "f", "me")


@pytest.fixture(scope="module")
def parser() -> Parser:
    return Parser(Path())


@settings(max_examples=40, deadline=None, derandomize=True)
@given(lines=st.lists(row(WRITTEN), min_size=1, max_size=9) | st.lists(row(EPOCH), min_size=1))
def test_the_short_way_says_what_the_long_way_says(parser: Parser, lines: list[str]) -> None:
    short = short_way(lines)
    if short is not None:
        long = long_way(parser, lines).drop_columns(["part"])
        assert short.cast(long.schema).to_pylist() == long.to_pylist()


@pytest.mark.parametrize("time", [stamp(1), "1767603600.125", "1767603600"])
def test_what_the_agent_writes_goes_the_short_way(time: str) -> None:
    rows = short_way([f"{time},n1,0,v100,71.5,1000.0,0.5,4", f"{time},n1,1,v100,71.5,,,"])
    assert rows is not None
    assert len(rows) == 2


@pytest.mark.parametrize(
    "line",
    [
        f"{stamp(1)},n1,0,v100,71.5 W,1000,0.5,4",
        f"{stamp(1)},n1,0,v100,71.5,nan,0.5,4",
        f"{stamp(1)},n1,0,v100,71.5,inf,0.5,4",
        f"{stamp(1)},n1,0.5,v100,71.5,1,0.5,4",
        f"{stamp(1)},n1,0,v100,71.5,1,0.5,0x4",
        f"{stamp(1)},n1,0,v100,71.5,1,0.5",
        f'{stamp(1)},"n1",0,v100,71.5,1,0.5,4',
        f"{stamp(1)[:-1]},n1,0,v100,71.5,1,0.5,4",
        f"{stamp(1)},n1,0,none,71.5,1,0.5,4",
        "1767603600125,n1,0,v100,71.5,1,0.5,4",
        "",
    ],
)
def test_what_is_unusual_goes_the_long_way(line: str) -> None:
    assert short_way([line]) is None


@pytest.mark.parametrize("odd", [False, True])
def test_a_large_file_goes_the_short_way_unless_a_line_is_odd(
    parser: Parser, tmp_path: Path, odd: bool
) -> None:
    path = tmp_path / "n1-1.csv"
    lines = [f"{stamp(s)},n1,0,v100,71.5,{1000 + s},0.5,4" for s in range(4000)]
    if odd:
        lines[2000] = lines[2000].replace("71.5", "71.5 W")
    path.write_text("\n".join([HEADER, *lines, ""]))
    found = Found("gpu", path.name, path, path.stat().st_size, path.stat().st_mtime_ns)
    [piece] = pieces(found, None, limits=Limits(10))
    assert piece.form == ("cells" if odd else "rows")
    rows = parser.rows([piece])
    assert rows["line"].to_pylist() == list(range(2, 4002))
    assert set(rows["power_w"].to_pylist()) == {71.5}
    assert set(rows["parse_error"].to_pylist()) == {None}


def test_what_several_threads_read_keeps_the_order_of_the_file(parser: Parser) -> None:
    # Names and times that come up late in the file are in no other thread's part of it.
    lines = [f"{stamp(n // 100)},s{n // 9000},{n % 8},t4,{n},{2 * n},," for n in range(60_000)]
    assert sum(map(len, lines)) > 2 * 2**20
    short = short_way(lines)
    assert short is not None
    long = long_way(parser, lines).drop_columns(["part"])
    assert short.cast(long.schema).equals(long)
