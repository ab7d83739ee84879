"""The parts that need no database: text blocks, stays, rates, shapes, progress, the spool."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gogh_core.errors import BatchRefused
from gogh_core.progress import Progress
from gogh_core.telemetry.parse import Limits, Parser, Piece, pieces
from gogh_core.telemetry.rates import Reports, robust_rate
from gogh_core.telemetry.shapes import SHAPES, rename
from gogh_core.telemetry.spool import Found, scan
from gogh_core.telemetry.stays import Event, build_stays, stretches
from gogh_core.telemetry.text import text_blocks

SAMPLES = SHAPES["gpu_samples"]


def blocks(data: bytes, **more: int) -> list[tuple[int, int, int]]:
    stream = io.BytesIO(data)
    found = text_blocks(stream, "x.csv", max_bytes=1 << 40, **{"mtime_ns": time.time_ns(), **more})
    return [(block.start, block.end, block.lines) for block in found]


def test_only_whole_lines_are_read_while_a_file_grows() -> None:
    assert blocks(b"a\nb\nc") == [(0, 4, 2)]


def test_a_last_line_without_newline_is_read_when_the_file_rests() -> None:
    assert blocks(b"a\nb\nc", mtime_ns=0) == [(0, 5, 3)]


def test_blocks_are_bounded_and_go_on_without_a_gap() -> None:
    found = blocks(b"0123456\n" * 100, block_bytes=64)
    assert found[0] == (0, 64, 8)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(found))
    assert sum(lines for _, _, lines in found) == 100


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(BatchRefused, match="longer"):
        blocks(b"x" * 1000, block_bytes=64)


class Endless(io.RawIOBase):
    """A file of so many rows that is nowhere in memory."""

    LINE = b"2026-01-05T09:00:00.000Z,s1,0,v100,100.0,1000.0,0.5\n"

    def __init__(self, rows: int) -> None:
        self.left = rows * len(self.LINE)

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0

    def read(self, count: int = -1) -> bytes:
        count = min(count, self.left, 1 << 20)
        self.left -= count
        return (self.LINE * (count // len(self.LINE) + 1))[:count]


def test_a_file_of_any_length_is_read_in_bounded_memory() -> None:
    tracemalloc.start()
    stream = Endless(300_000)
    lines = 0
    for block in text_blocks(stream, "x.csv", mtime_ns=1, max_bytes=1 << 60, block_bytes=1 << 20):  # type: ignore[arg-type]
        lines += block.lines
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines >= 290_000
    assert peak < 8 << 20


def test_headers_of_nvidia_smi_are_known_with_their_units() -> None:
    header = [
        "timestamp",
        "name",
        "index",
        "power.draw [W]",
        "utilization.gpu [%]",
        "memory.used [MiB]",
    ]
    names, notes = rename(SAMPLES, header, where="x")
    assert names == [
        "ts",
        "gpu_type",
        "gpu_index",
        "power_w",
        "utilisation_percent",
        "memory_used_mb",
    ]
    assert not notes


def test_a_column_that_is_there_twice_is_refused() -> None:
    with pytest.raises(BatchRefused, match="twice"):
        rename(SAMPLES, ["ts", "timestamp", "gpu_index", "power_w"], where="x")


def test_the_name_of_a_file_is_its_server_or_job(tmp_path: Path) -> None:
    assert Found("gpu", "rack-7-12.csv.gz", tmp_path).stem == "rack-7"
    assert Found("smi", "node.log", tmp_path).stem == "node"


def test_files_are_read_in_the_order_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "gpu").mkdir()
    for number in (10, 9, 100):
        (tmp_path / f"gpu/s1-{number}.csv").write_text("x")
    assert [found.name for found in scan(tmp_path, max_file_mb=1)] == [
        "s1-9.csv",
        "s1-10.csv",
        "s1-100.csv",
    ]


LINES = st.lists(
    st.one_of(
        st.text(
            alphabet=st.characters(blacklist_characters="\n\r", blacklist_categories=["Cs"]),
            max_size=40,
        ),
        st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"").decode("latin-1")),
        st.sampled_from(
            ["1767603600,s1,0,v100,5,6,0.5", '"', ",,,,,,", "1767603600,s1,[N/A],x,%,MiB,-1"]
        ),
    ),
    max_size=20,
)


@pytest.fixture(scope="module")
def parser() -> Parser:
    return Parser(Path())


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    lines=LINES,
    raw=st.binary(max_size=40).filter(lambda raw: b"\n" not in raw),
    kind=st.sampled_from(["csv", "jsonl"]),
)
def test_every_line_becomes_exactly_one_row(
    parser: Parser,
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    raw: bytes,
    kind: str,
) -> None:
    folder = tmp_path_factory.getbasetemp() / "gpu"
    folder.mkdir(exist_ok=True)
    path = folder / f"s1-1.{kind}"
    header = (
        b"ts,server_id,gpu_index,gpu_type,power_w,energy_j,utilisation\n" if kind == "csv" else b""
    )
    body = b"\n".join([*(line.encode() for line in lines), raw]) + b"\n"
    path.write_bytes(header + body)
    facts = path.stat()
    found = Found("gpu", path.name, path, facts.st_size, facts.st_mtime_ns)
    batch: list[Piece] = list(pieces(found, None, limits=Limits(10)))
    rows = sum(len(parser.rows([piece])) for piece in batch)
    expected = sum(bool(line.strip(b"\r").strip(b"\0").strip()) for line in body.split(b"\n"))
    assert rows == expected


def stays(*events: Event, spread: bool = False) -> list[tuple[str, tuple[int, ...], float, float]]:
    found = build_stays(events, {"j": spread})
    return [(stay.server, stay.gpus, stay.start, stay.end) for stay in found]


def test_a_move_ends_one_stay_and_begins_another() -> None:
    found = stays(
        Event("j", 0, "started", "a", (0,)),
        Event("j", 10, "moved", "b", (1,)),
        Event("j", 30, "finished", None, ()),
    )
    assert found == [("a", (0,), 0, 10), ("b", (1,), 10, 30)]


def test_a_start_that_is_told_twice_is_one_stay() -> None:
    found = stays(
        Event("j", 0, "started", "a", (0,)),
        Event("j", 0.4, "started", "a", (0,)),
        Event("j", 9, "stopped", "a", (0,)),
    )
    assert found == [("a", (0,), 0, 9)]


def test_one_replica_of_a_spread_job_stops_alone() -> None:
    found = stays(
        Event("j", 0, "started", "a", (0,)),
        Event("j", 0, "started", "b", (0,)),
        Event("j", 5, "stopped", "a", (0,)),
        Event("j", 9, "finished", None, ()),
        spread=True,
    )
    assert sorted(found) == [("a", (0,), 0, 5), ("b", (0,), 0, 9)]


def test_a_partner_cuts_the_stretch() -> None:
    events = [
        Event("j", 0, "started", "a", (0,)),
        Event("k", 100, "started", "a", (0,)),
        Event("k", 200, "finished", None, ()),
    ]
    found = stretches(build_stays(events, {}), {}, 0, 300)
    cut = [(s.partner, s.start, s.end) for s in found if s.job == "j"]
    assert cut == [(None, 0, 100), ("k", 100, 200), (None, 200, 300)]


def reports(steps: np.ndarray, checkpoint: tuple[int, ...] = ()) -> Reports:
    ts = np.arange(len(steps), dtype=float)
    marks = np.isin(np.arange(len(steps)), checkpoint)
    return Reports(ts, steps.astype(float), np.zeros(len(steps)), marks)


def test_pauses_without_a_mark_do_not_bend_the_rate() -> None:
    gains = np.full(300, 5.0)
    gains[100:115] = 0.0
    found = robust_rate([reports(np.cumsum(gains))])
    assert found is not None
    assert found.throughput == pytest.approx(5.0, rel=0.02)


def test_a_slow_job_that_counts_whole_steps_has_its_true_rate() -> None:
    found = robust_rate([reports(np.floor(np.arange(300) * 0.13))])
    assert found is not None
    assert found.throughput == pytest.approx(0.13, rel=0.1)


def test_too_little_gives_no_rate() -> None:
    assert robust_rate([reports(np.array([1.0, 2.0]))]) is None
    assert robust_rate([reports(np.zeros(100))]) is None


def test_a_step_costs_microseconds_and_the_reports_arrive(tmp_path: Path) -> None:
    with Progress("job/1", tmp_path, period_s=0.01, rank=0, attempt=2) as progress:
        began = time.process_time()
        for _ in range(100_000):
            progress.step()
        cost = (time.process_time() - began) / 100_000
        with progress.checkpoint():
            pass
    [path] = (tmp_path / "progress").iterdir()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert re.fullmatch(r"job_1-r0-\d{19}\.jsonl", path.name)
    assert lines[-1]["steps"] == 100_000
    assert {line["event"] for line in lines} >= {"start", "checkpoint", "end"}
    assert {line["attempt"] for line in lines} == {2}
    assert cost < 10e-6


def test_progress_without_a_spool_or_with_a_broken_one_never_hurts_the_job(tmp_path: Path) -> None:
    Progress("j", None, period_s=0.01).step()
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    progress = Progress("j", blocked, period_s=0.01)
    deadline = time.monotonic() + 60
    while progress.trouble is None and time.monotonic() < deadline:
        progress.step()
        time.sleep(0.005)
    progress.close()
    assert progress.trouble


def test_a_forked_child_does_not_report_for_its_parent(tmp_path: Path) -> None:
    progress = Progress("j", tmp_path, period_s=0.01)
    child = os.fork()
    if child == 0:
        progress.step(1000)
        progress.close()
        os._exit(0)
    os.waitpid(child, 0)
    progress.step()
    progress.close()
    text = "".join(path.read_text() for path in (tmp_path / "progress").iterdir())
    assert "1000" not in text
