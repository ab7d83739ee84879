"""A hostile file of the spool is refused with its reason; the good rows beside it are stored."""

from __future__ import annotations

import gzip
import io
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gogh_core.settings import Settings
from gogh_core.store import Store
from gogh_core.telemetry import IngestReport, ingest
from tests.telemetry.world import (
    HEADER,
    adds_up,
    at,
    csv,
    ledger,
    opened,
    put,
    rows_of,
    sample,
    stamp,
    state_of,
)

NOW = at(60)


def good(settings: Settings) -> None:
    """20 good rows before and 20 after whatever lies between, by name."""
    put(settings, "gpu/aa-1.csv", csv(sample(s, "s1") for s in range(20)))
    put(settings, "gpu/zz-1.csv", csv(sample(s, "s2") for s in range(20)))


def run(
    home: Path, write: Callable[[Settings], None], **limits: float
) -> tuple[Store, IngestReport]:
    settings, store = opened(home, state_of([("s1", "v100", 4), ("s2", "v100", 4)]), **limits)
    good(settings)
    write(settings)
    report = ingest(store, settings, now=NOW)
    own = "SELECT server_id, count(*) FROM gpu_samples WHERE gpu_index = 0 GROUP BY ALL ORDER BY 1"
    assert rows_of(store, own) == [("s1", 20), ("s2", 20)], report.faults
    assert adds_up(store)
    again = ingest(store, settings, now=NOW)
    assert not [fault for fault in again.faults if "gpu/mm" in fault], "refused once, not each time"
    return store, report


def refused(report: IngestReport, name: str = "gpu/mm") -> str:
    found = [why for source in report.sources for why in source.refused if name in why]
    assert len(found) == 1, report.faults
    return found[0]


def parquet(
    settings: Settings, table: pa.Table, name: str = "gpu/mm-1.parquet", **more: object
) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream, **more)
    put(settings, name, stream.getvalue())
    return stream.getvalue()


def samples(count: int = 10) -> dict[str, object]:
    return {
        "ts": [at(s) for s in range(count)],
        "server_id": ["s1"] * count,
        "gpu_index": [1] * count,
        "power_w": [50.0] * count,
    }


@pytest.mark.parametrize("name", ["gpu/mm-².csv", "gpu/mm-١.csv", "gpu/mm-" + "9" * 200 + ".csv"])
def test_a_name_with_odd_digits_is_a_name(tmp_path: Path, name: str) -> None:
    rows = csv(sample(s, "s1", 1) for s in range(5))
    settings, store = opened(tmp_path, state_of([("s1", "v100", 4)]))
    put(settings, name, rows)
    put(settings, "gpu/zz-1.csv", csv(sample(s, "s1") for s in range(20)))
    report = ingest(store, settings, now=NOW)
    assert report.ok, report.faults
    assert rows_of(store, "SELECT count(*) FROM gpu_samples") == [(25,)]


@pytest.mark.parametrize("name", [b"mm-\xff\xfe.csv", b"mm\n\x1b[2J-1.csv", b"mm-\xed\xa0\x80.csv"])
def test_a_name_that_is_not_plain_is_refused(tmp_path: Path, name: bytes) -> None:
    def write(settings: Settings) -> None:
        path = os.fsencode(settings.spool / "gpu") + b"/" + name
        Path(os.fsdecode(path)).write_text(csv(sample(s, "s1", 1) for s in range(5)))
        stray = os.fsencode(settings.spool) + b"/" + name
        Path(os.fsdecode(stray)).write_text("")

    _, report = run(tmp_path, write)
    assert "its name is not plain UTF-8" in refused(report)
    told = refused(report) + " ".join(w for s in report.sources for w in s.warnings)
    assert told.isprintable()
    told.encode()


def test_a_header_cell_of_a_megabyte_is_refused(tmp_path: Path) -> None:
    _, report = run(
        tmp_path,
        lambda s: put(s, "gpu/mm-1.csv", "x" * 1_000_000 + "," + HEADER + "\n1,2\n"),
    )
    assert "header line is longer than" in refused(report)


def test_a_line_of_a_megabyte_is_held_in_few_words(tmp_path: Path) -> None:
    rows = [sample(s, "s1", 1) for s in range(20)]
    store, _ = run(
        tmp_path,
        lambda s: put(s, "gpu/mm-1.csv", csv([*rows[:5], "y" * 1_000_000, *rows[5:]])),
    )
    assert ledger(store, "gpu/mm-1.csv")["rows_quarantined"] == 1
    assert rows_of(store, "SELECT max(length(row_json)) FROM quarantine")[0][0] < 2000


@pytest.mark.parametrize("seed", range(6))
def test_a_parquet_file_with_damaged_pages_is_refused(tmp_path: Path, seed: int) -> None:
    def write(settings: Settings) -> None:
        data = bytearray(parquet(settings, pa.table(samples(1000)), compression="snappy"))
        chance = np.random.default_rng(seed)
        for place in chance.integers(4, len(data) - 1200, 40):
            data[place] = chance.integers(256)
        put(settings, "gpu/mm-1.parquet", bytes(data))

    store, _ = run(tmp_path, write)
    [(status,)] = rows_of(
        store, "SELECT DISTINCT status FROM spool_files WHERE path LIKE 'gpu/mm%'"
    )
    assert status in ("refused", "taken")  # taken: the rows it gave went through the contract


ODD = {
    "structs": pa.array([{"a": 1}] * 10),
    "maps": pa.array([[("a", 1)]] * 10, pa.map_(pa.string(), pa.int32())),
    "binary": pa.array([b"\xff\xfe"] * 10),
    "decimals": pa.array([1] * 10).cast(pa.decimal128(38, 5)),
    "durations": pa.array([1] * 10, pa.duration("ns")),
    "lists": pa.array([[[1]]] * 10),
    "booleans": pa.array([True] * 10),
    "nulls": pa.nulls(10),
    "halves": pa.array([np.float16(1)] * 10, pa.float16()),
}


@pytest.mark.parametrize("column", ["ts", "gpu_index", "power_w", "server_id"])
def test_parquet_columns_of_odd_types_harm_no_other_file(tmp_path: Path, column: str) -> None:
    def write(settings: Settings) -> None:
        for name, values in ODD.items():
            try:
                parquet(
                    settings, pa.table({**samples(), column: values}), f"gpu/mm{name}-1.parquet"
                )
            except pa.ArrowException:  # cannot be written either
                continue

    store, _ = run(tmp_path, write)
    assert rows_of(store, "SELECT count(*) FROM spool_files WHERE path LIKE 'gpu/mm%'")[0][0] >= 8


def test_a_dictionary_bomb_is_refused(tmp_path: Path) -> None:
    """2.3 GB of text from a file of about a kilobyte."""

    def write(settings: Settings) -> None:
        word = pa.array(["x" * 1_000_000])
        coded = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2300, np.int32)), word)
        rows = {**samples(2300), "server_id": coded}
        data = parquet(settings, pa.table(rows), compression="zstd", compression_level=19)
        assert len(data) < 30_000

    _, report = run(tmp_path, write)
    assert "MB to read" in refused(report) or "unpack" in refused(report)


@pytest.mark.parametrize(
    "moment",
    ["4714-11-24 00:00:00+00 (BC)", "4714-01-01 BC", "294247-01-10 04:00:54+00", "infinity"],
)
def test_a_sample_outside_of_all_years_is_held(tmp_path: Path, moment: str) -> None:
    rows = [sample(s, "s1", 1) for s in range(20)]
    odd = sample(1, "s1", 2).replace(stamp(1), moment)
    store, report = run(tmp_path, lambda s: put(s, "gpu/mm-1.csv", csv([*rows, odd])))
    assert report.ok, report.faults
    found = ledger(store, "gpu/mm-1.csv")
    assert (found["rows_clean"], found["rows_quarantined"]) == (20, 1)


def test_parquet_times_outside_of_all_years_harm_no_other_file(tmp_path: Path) -> None:
    def write(settings: Settings) -> None:
        ends = pa.array([-(2**63) + 1, 2**63 - 1] * 5, pa.timestamp("us"))
        parquet(settings, pa.table({**samples(), "ts": ends}))

    store, _ = run(tmp_path, write)
    assert ledger(store, "gpu/mm-1.parquet")["rows_clean"] == 0


@pytest.mark.parametrize("deep", [1_000, 60_000, 1_000_000])
@pytest.mark.parametrize("ends", ["[]", "{}"])
def test_deeply_nested_json_harms_no_other_file(tmp_path: Path, deep: int, ends: str) -> None:
    opening = "[" if ends == "[]" else '{"ts":'
    line = '{"ts":' + opening * deep + "1" + ends[1] * deep + "}"
    store, _ = run(tmp_path, lambda s: put(s, "gpu/mm-1.jsonl", line + "\n"))
    assert ledger(store, "gpu/mm-1.jsonl")["rows_clean"] == 0


def test_a_gibibyte_of_newlines_in_a_megabyte_is_refused_in_seconds(tmp_path: Path) -> None:
    def write(settings: Settings) -> None:
        stream = io.BytesIO()
        with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=9) as packed:
            for _ in range(256):
                packed.write(b"\n" * 2**22)
        put(settings, "gpu/mm-1.csv.gz", stream.getvalue())

    began = time.monotonic()
    _, report = run(tmp_path, write)
    assert "unpacks to more than" in refused(report) or "lines" in refused(report)
    assert time.monotonic() - began < 60


def test_thirty_million_rows_in_a_small_parquet_file_are_refused_unread(tmp_path: Path) -> None:
    def write(settings: Settings) -> None:
        count = 30_000_000
        columns = {
            "ts": pa.array(np.full(count, 1.7e9)),
            "gpu_index": pa.array(np.zeros(count, np.int32)),
            "power_w": pa.array(np.full(count, 50.0)),
        }
        data = parquet(settings, pa.table(columns), compression="zstd")
        assert len(data) < 4_000_000

    began = time.monotonic()
    _, report = run(tmp_path, write)
    assert "not read" in refused(report)
    assert time.monotonic() - began < 60


def test_a_file_over_its_time_ends_its_reader_and_not_the_others(tmp_path: Path) -> None:
    """Quoted lines take the slow way; a second is too little for these."""
    row = ",".join(f'"{cell}"' for cell in sample(1, "s1", 1).split(","))
    rows = csv(row for _ in range(1_200_000))
    began = time.monotonic()
    _, report = run(tmp_path, lambda s: put(s, "gpu/mm-1.csv", rows), read_limit_s=1.0)
    assert "takes longer than 1 s" in refused(report)
    assert time.monotonic() - began < 60


def test_a_file_that_takes_too_much_memory_is_refused(tmp_path: Path) -> None:
    def write(settings: Settings) -> None:
        word = pa.array(["x" * 120_000])
        coded = pa.DictionaryArray.from_arrays(pa.array(np.zeros(6000, np.int32)), word)
        parquet(settings, pa.table({**samples(6000), "server_id": coded}), compression="zstd")

    _, report = run(tmp_path, write, read_memory_mb=768)
    refused(report)


def test_killer_files_are_refused_and_all_others_are_read(tmp_path: Path) -> None:
    """Several files, each of which is over the time limit, among many good ones."""
    settings, store = opened(
        tmp_path, state_of([("s1", "v100", 4)]), read_limit_s=1.0, max_rows=10_000_000
    )
    slow = csv(",".join(f'"{c}"' for c in sample(1, "s1", 1).split(",")) for _ in range(1_200_000))
    for number in range(30):
        put(settings, f"gpu/s1-{number}.csv", csv([sample(number, "s1")]))
    for number in (100, 200):
        put(settings, f"gpu/s1-{number}.csv", slow)
    for number in range(300, 310):
        put(settings, f"gpu/s1-{number}.csv", csv([sample(number - 270, "s1")]))
    report = ingest(store, settings, now=at(400))
    assert len(report.sources[0].refused) == 2, report.faults
    assert rows_of(store, "SELECT count(*) FROM gpu_samples") == [(40,)]


NAMES = st.one_of(
    st.text(min_size=1, max_size=20).map(lambda t: t.encode("utf-8", "surrogatepass")),
    st.binary(min_size=1, max_size=20),
    st.sampled_from([b"s1-1", b"s1-\xc2\xb2", b"-", b"--1", b"s1-00", b"\xff-1"]),
).map(lambda n: n.replace(b"/", b"_").replace(b"\0", b"_"))
ENDINGS = st.sampled_from([b".csv", b".csv.gz", b".jsonl", b".jsonl.gz", b".parquet", b".log", b""])


def _parquet_bytes() -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(samples(50)), stream)
    return stream.getvalue()


WHOLE = [
    csv(sample(s, "s1", 1) for s in range(50)).encode(),
    gzip.compress(csv(sample(s, "s1", 1) for s in range(50)).encode()),
    _parquet_bytes(),
    b"".join(b'{"ts": %d, "gpu_index": 1, "power_w": 5}\n' % (1767603600 + s) for s in range(50)),
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good file with some bytes changed, a part cut out, or a part doubled."""
    data = bytearray(draw(st.sampled_from(WHOLE)))
    for _ in range(draw(st.integers(0, 12))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        lo = draw(st.integers(0, len(data)))
        del data[lo : lo + draw(st.integers(0, 200))]
    return bytes(data) * draw(st.integers(1, 2))


CONTENTS = st.one_of(damaged(), st.binary(max_size=300), st.text(max_size=300).map(str.encode))


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Store, list[int]]:
    settings, store = opened(tmp_path_factory.mktemp("fuzz"), state_of([("s1", "v100", 4)]))
    return settings, store, [0]


@given(files=st.lists(st.tuples(NAMES, ENDINGS, CONTENTS), min_size=1, max_size=4))
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_lies_beside_it_a_good_file_is_stored(
    fuzzed: tuple[Settings, Store, list[int]], files: list[tuple[bytes, bytes, bytes]]
) -> None:
    settings, store, done = fuzzed
    done[0] += 1
    for name, ending, data in files:
        for folder in (b"gpu", b"progress", b"events", b"smi", b"zeus"):
            path = os.fsencode(settings.spool) + b"/" + folder
            os.makedirs(path, exist_ok=True)
            try:
                with open(path + b"/" + name[:60] + ending, "wb") as stream:
                    stream.write(data)
            except OSError:  # "." or ".."
                continue
            os.utime(path + b"/" + name[:60] + ending, (time.time() - 600,) * 2)
    base = done[0] * 20
    put(settings, f"gpu/good-{done[0]}.csv", csv(sample(base + s, "s1", 3) for s in range(20)))
    ingest(store, settings, now=at(100_000))
    found = ledger(store, f"gpu/good-{done[0]}.csv")
    assert found["rows_in"] == 20
    assert found["rows_clean"] + found["rows_duplicate"] == 20
    assert adds_up(store)
