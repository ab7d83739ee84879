"""Every bad input that is known: what becomes of it, and that nothing else suffers."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gogh_core.errors import BatchRefused
from gogh_core.settings import Settings
from gogh_core.store import Store
from gogh_core.telemetry import IngestReport
from gogh_core.telemetry.spool import open_safely
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
    take_in,
)

NOW = at(60)
CASES = [
    *("good", "truncated", "latin1", "utf16", "nul", "dead", "missing", "extra", "renamed", "na"),
    *("negative", "absurd", "t4", "future", "millis", "reversed", "index", "unknown", "gz"),
    *("parquet", "bomb", "quote", "twice", "conflict", "unit", "json", "noheader", "nodata"),
]


@dataclass
class World:
    settings: Settings
    store: Store
    first: IngestReport
    second: IngestReport

    def of(self, name: str) -> dict[str, Any]:
        return ledger(self.store, name)

    def held(self, source: str) -> list[tuple[Any, ...]]:
        return rows_of(
            self.store,
            "SELECT line, column_name, value, reason, row_json FROM quarantine "
            f"WHERE source = '{source}' ORDER BY line",
        )

    def clean(self, server: str) -> int:
        return int(
            rows_of(self.store, f"SELECT count(*) FROM gpu_samples WHERE server_id = '{server}'")[
                0
            ][0]
        )


def ten(server: str, kind: str = "v100") -> list[str]:
    return [sample(second, server, kind=kind) for second in range(10)]


def write_all(settings: Settings, outside: Path) -> None:
    def gpu(name: str, lines: list[str], header: str = HEADER) -> None:
        put(settings, f"gpu/{name}-1.csv", csv(lines, header))

    gpu("good", ten("good"))
    put(settings, "gpu/empty-1.csv", b"")
    put(settings, "gpu/nodata-1.csv", HEADER + "\n")
    put(settings, "gpu/truncated-1.csv", csv(ten("truncated"))[:-30])
    put(
        settings,
        "gpu/latin1-1.csv",
        csv(ten("latin1")).encode().replace(b"09:00:03.000Z,lat", b"09:00:03.000Z,l\xe4t"),
    )
    put(settings, "gpu/utf16-1.csv", csv(ten("utf16")).encode("utf-16"))
    put(settings, "gpu/nul-1.csv", csv(ten("nul")).encode().replace(b"09:00:05", b"09\x00\x00:05"))
    put(settings, "gpu/dead-1.csv", csv(ten("dead")).encode() + b"\0" * 5000)
    gpu(
        "missing",
        [line.rsplit(",", 3)[0] for line in ten("missing")],
        "ts,server_id,gpu_index,gpu_type",
    )
    gpu("extra", [line + ",7" for line in ten("extra")], HEADER + ",fan")
    gpu("renamed", ten("renamed"), HEADER.replace("power_w", "power_watts"))
    gpu("na", [sample(s, "na", power="[N/A]") for s in range(10)])
    gpu("negative", [*ten("negative"), sample(11, "negative", power=-5)])
    gpu("absurd", [*ten("absurd"), sample(11, "absurd", power=98000)])
    gpu(
        "t4",
        [
            *(sample(s, "t4", kind="t4", power=50, energy=50 * s) for s in range(10)),
            sample(11, "t4", kind="t4", power=400, energy=550),
        ],
    )
    gpu("future", [*ten("future"), sample(360_000, "future", energy=5000)])
    gpu("millis", [*ten("millis"), f"{int(at(11).timestamp() * 1000)},millis,0,v100,100,3000,0.5"])
    gpu("reversed", list(reversed(ten("reversed"))))
    gpu("index", [*ten("index"), sample(11, "index", gpu=8), sample(12, "index", gpu=-1)])
    gpu("unknown", [*ten("unknown"), sample(11, "unknown", kind="h999")])
    gpu("foreign", ten("stranger"))
    put(settings, "gpu/gz-1.csv.gz", gzip.compress(csv(ten("gz")).encode())[:-12])
    gpu("quote", [*ten("quote"), '"' + sample(11, "quote"), sample(12, "quote")])
    gpu("twice", [*ten("twice"), *ten("twice")[:4]])
    gpu("conflict", [*ten("conflict"), sample(9, "conflict", power=150.0)])
    gpu("noheader", ten("noheader"), sample(0, "noheader"))
    units = "timestamp, index, name, power.draw [W], utilization.gpu [%], memory.used [MiB]"
    rows = [f"{stamp(s)}, 0, Tesla V100-SXM2-16GB, 71.5 W, 34 %, 1024 MiB" for s in range(5)]
    put(settings, "smi/unit.csv", csv(rows, units))
    put(
        settings,
        "gpu/json-1.jsonl",
        '{"ts":"' + stamp(1) + '","gpu_index":0,"power_w":90}\nno json\n[1]\n',
    )
    table = pa.table(
        {"ts": [at(s) for s in range(10)], "gpu_index": [0] * 10, "power_w": [50.0] * 10}
    )
    (settings.spool / "gpu").mkdir(parents=True, exist_ok=True)
    pq.write_table(table, settings.spool / "gpu/parquet-1.parquet")
    names = HEADER.split(",")
    bomb = pa.table({name: pa.nulls(2_000_000, pa.float64()) for name in names})
    pq.write_table(bomb, settings.spool / "gpu/bomb-1.parquet", compression="zstd")
    put(settings, "gpu/torn-1.parquet", b"PAR1 and no end")
    put(settings, "gpu/growing-1.csv.open", csv(ten("growing")))
    secret = outside / "secret.csv"
    secret.write_text(csv(ten("good")))
    os.symlink(secret, settings.spool / "gpu/link-1.csv")
    os.symlink(outside, settings.spool / "progress")
    os.mkfifo(settings.spool / "gpu/pipe-1.csv")
    put(settings, "gpu/what-1.exe", b"MZ")
    put(settings, "stray-1.csv", csv(ten("good")))
    put(settings, "dcgm/good-2.csv", csv(ten("good")))
    with (settings.spool / "gpu/huge-1.csv").open("wb") as stream:
        stream.truncate(65 * 1024 * 1024)  # a hole; larger than max_file_mb


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("bad")
    servers = [(name, "t4" if name == "t4" else "v100", 4) for name in CASES]
    settings, store = opened(home, state_of(servers), max_file_mb=64)
    outside = tmp_path_factory.mktemp("outside")
    write_all(settings, outside)
    first = take_in(settings, store, NOW)
    second = take_in(settings, store, NOW)
    return World(settings, store, first, second)


def refusals(world: World, name: str) -> str:
    found = [why for source in world.first.sources for why in source.refused if name in why]
    assert found, f"{name} was not refused"
    return found[0]


def test_the_ledger_adds_up(world: World) -> None:
    assert adds_up(world.store)
    for source in world.first.sources:
        parts = (
            source.rows_clean + source.rows_quarantined + source.rows_duplicate + source.rows_late
        )
        assert source.rows_in == parts


def test_a_second_ingest_finds_nothing_new(world: World) -> None:
    assert world.second.rows_in == 0


def test_a_run_with_refused_files_is_not_ok(world: World) -> None:
    assert not world.first.ok
    assert any("utf16" in fault for fault in world.first.faults)


def test_a_good_file_among_bad_ones_is_taken_whole(world: World) -> None:
    found = world.of("gpu/good-1.csv")
    assert (found["rows_in"], found["rows_clean"]) == (10, 10)


def test_an_empty_file_brings_nothing(world: World) -> None:
    assert not rows_of(world.store, "FROM ingest_batches WHERE source = 'gpu/empty-1.csv'")
    assert world.of("gpu/nodata-1.csv")["rows_in"] == 0


def test_a_truncated_last_line_is_quarantined(world: World) -> None:
    found = world.of("gpu/truncated-1.csv")
    assert (found["rows_clean"], found["rows_quarantined"]) == (9, 1)
    assert (
        "cells" in world.held("gpu/truncated-1.csv")[0][3]
        or "read" in world.held("gpu/truncated-1.csv")[0][3]
    )


def test_a_line_that_is_not_utf8_is_quarantined(world: World) -> None:
    assert world.of("gpu/latin1-1.csv")["rows_clean"] == 9
    assert world.held("gpu/latin1-1.csv")[0][2] == "line is not UTF-8"


def test_a_file_in_utf16_is_refused_and_stays(world: World) -> None:
    assert "UTF-16" in refusals(world, "utf16")
    assert (world.settings.spool / "gpu/utf16-1.csv").exists()
    assert world.of("gpu/utf16-1.csv")["status"] == ["refused"]


def test_nul_bytes_inside_a_line_quarantine_it(world: World) -> None:
    assert world.of("gpu/nul-1.csv")["rows_clean"] == 9
    assert world.held("gpu/nul-1.csv")[0][2] == "line holds NUL bytes"


def test_nul_bytes_at_the_end_are_dropped_and_told(world: World) -> None:
    found = world.of("gpu/dead-1.csv")
    assert (found["rows_in"], found["rows_clean"]) == (10, 10)
    assert "5000 NUL bytes dropped" in found["detail"]


def test_a_missing_column_refuses_the_file(world: World) -> None:
    assert "power_w is missing" in refusals(world, "missing")


def test_an_extra_column_is_told_and_not_used(world: World) -> None:
    found = world.of("gpu/extra-1.csv")
    assert found["rows_clean"] == 10
    assert "fan" in found["detail"]


def test_a_renamed_column_is_guessed_but_not_used(world: World) -> None:
    assert "is 'power_watts' meant to be power_w?" in refusals(world, "renamed")


def test_not_available_is_a_missing_value(world: World) -> None:
    assert world.of("gpu/na-1.csv")["rows_clean"] == 10
    assert rows_of(
        world.store, "SELECT count(power_w) FROM gpu_samples WHERE server_id = 'na'"
    ) == [(0,)]


@pytest.mark.parametrize(
    ("name", "column", "reason"),
    [
        ("negative", "power_w", "power is between 0 and 5000 W"),
        ("absurd", "power_w", "power is between 0 and 5000 W"),
        ("t4", "power_w", "within what the GPU type can draw"),
        ("future", "ahead_s", "not from the future"),
        ("millis", "parse_error", "every cell can be read"),
        ("unknown", "type_known", "the GPU type is known"),
        ("conflict", "key_taken", "one sample at a time"),
    ],
)
def test_one_bad_row_is_quarantined_with_its_reason(
    world: World, name: str, column: str, reason: str
) -> None:
    found = world.of(f"gpu/{name}-1.csv")
    assert (found["rows_clean"], found["rows_quarantined"]) == (10, 1)
    line, where, _, why, _ = world.held(f"gpu/{name}-1.csv")[0]
    assert where == column
    assert reason in why
    assert line == 12


def test_milliseconds_are_called_by_their_name(world: World) -> None:
    assert "looks like milliseconds" in world.held("gpu/millis-1.csv")[0][2]


def test_reversed_order_is_put_right_and_told(world: World) -> None:
    assert world.of("gpu/reversed-1.csv")["rows_clean"] == 10
    [gpu] = [source for source in world.first.sources if source.name == "gpu"]
    assert any("come in the order of time" in warning for warning in gpu.warnings)


def test_a_gpu_that_does_not_exist_is_quarantined(world: World) -> None:
    assert [row[1] for row in world.held("gpu/index-1.csv")] == ["gpu_known", "gpu_known"]


def test_a_file_of_an_unknown_server_is_refused_whole(world: World) -> None:
    found = world.of("gpu/foreign-1.csv")
    assert (found["rows_clean"], found["rows_quarantined"], found["status"]) == (0, 10, ["refused"])
    assert len(world.held("gpu/foreign-1.csv")) == 10


def test_a_gzip_file_that_is_cut_off_gives_its_whole_lines(world: World) -> None:
    found = world.of("gpu/gz-1.csv.gz")
    assert found["rows_clean"] >= 8
    assert "not whole" in found["detail"]


def test_a_quote_that_is_never_closed_spoils_one_line(world: World) -> None:
    found = world.of("gpu/quote-1.csv")
    assert (found["rows_clean"], found["rows_quarantined"]) == (11, 1)


def test_the_same_rows_twice_are_duplicates(world: World) -> None:
    found = world.of("gpu/twice-1.csv")
    assert (found["rows_clean"], found["rows_duplicate"]) == (10, 4)


def test_rows_without_a_header_are_refused(world: World) -> None:
    assert "missing" in refusals(world, "noheader")


def test_units_in_cells_are_read(world: World) -> None:
    assert world.of("smi/unit.csv")["rows_clean"] == 5
    found = rows_of(
        world.store,
        "SELECT power_w, utilisation, memory_used_mb, gpu_type FROM gpu_samples "
        "WHERE server_id = 'unit' LIMIT 1",
    )
    assert found == [(71.5, 0.34, 1024.0, "v100")]


def test_lines_that_are_no_json_objects_are_quarantined(world: World) -> None:
    found = world.of("gpu/json-1.jsonl")
    assert (found["rows_clean"], found["rows_quarantined"]) == (1, 2)


def test_parquet_is_read_and_takes_its_server_from_its_name(world: World) -> None:
    assert world.of("gpu/parquet-1.parquet")["rows_clean"] == 10
    assert world.clean("parquet") == 10


def test_a_parquet_bomb_is_refused_unread(world: World) -> None:
    assert "not read" in refusals(world, "bomb")


def test_a_torn_parquet_file_is_refused(world: World) -> None:
    assert "no Parquet file" in refusals(world, "torn")


def test_a_file_that_is_still_written_is_left_alone(world: World) -> None:
    assert world.clean("growing") == 0


def test_what_lies_beside_the_folders_of_the_spool_is_told(world: World) -> None:
    [spool] = [source for source in world.first.sources if source.name == "spool"]
    assert spool.warnings[0].startswith("dcgm, stray-1.csv not read")


def test_a_link_put_in_the_place_of_a_file_after_the_scan_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    os.symlink(secret, tmp_path / "s1-1.csv")
    with pytest.raises(BatchRefused, match="cannot be opened"):
        open_safely(tmp_path / "s1-1.csv")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("link-1.csv", "symbolic link"),
        ("progress", "symbolic link"),
        ("pipe-1.csv", "no regular file"),
        ("what-1.exe", "no known ending"),
        ("huge-1.csv", "64 MB"),
    ],
)
def test_what_must_not_be_read_is_refused(world: World, name: str, why: str) -> None:
    assert why in refusals(world, name)
