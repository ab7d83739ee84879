"""Exactly once, late rows, skew, observations, quarantine and records, on one small cluster."""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gogh_core.domain import Slot
from gogh_core.errors import InvalidInput
from gogh_core.settings import Settings
from gogh_core.store import Store
from gogh_core.telemetry import (
    IngestReport,
    drop,
    held,
    ingest,
    readmit,
    record_state,
    show,
    trusted,
)
from gogh_core.telemetry.parse import Piece
from gogh_core.telemetry.retain import known_files
from gogh_core.telemetry.skew import Clocks
from gogh_core.telemetry.take import take
from tests.telemetry.world import (
    START,
    adds_up,
    at,
    cleaned,
    csv,
    ledger,
    observed_now,
    opened,
    put,
    rows_of,
    sample,
    stamp,
    state_of,
    take_in,
)

SERVERS = [(name, "v100", 4) for name in ("grow", "over", "late", "shared", "smi", "s1")]
JOBS = [
    ("alone", (Slot("shared", (0,)),)),
    ("left", (Slot("shared", (1,)),)),
    ("right", (Slot("shared", (1,)),)),
]
STATE = state_of(SERVERS, JOBS)


@dataclass
class World:
    settings: Settings
    store: Store
    first: IngestReport
    second: IngestReport

    def times(self, server: str) -> list[float]:
        found = rows_of(
            self.store,
            f"SELECT epoch(ts) FROM gpu_samples WHERE server_id = '{server}' ORDER BY ts",
        )
        return [row[0] - START.timestamp() for row in found]


def report(second: float, job: str, steps: float, **more: Any) -> str:
    return json.dumps({"ts": stamp(second), "job_id": job, "steps": steps, **more})


def progress(job: str, rate: float, until: int) -> list[str]:
    """Slow for 20 s, then at its rate, with a pause of 10 s for a checkpoint."""
    lines, steps = [], 0.0
    for second in range(until):
        event = "checkpoint" if second in (100, 110) else None
        lines.append(report(second, job, steps, event=event))
        paused = 100 <= second < 110
        steps += 0.0 if paused else rate * (0.2 if second < 20 else 1.0)
    return lines


def first_files(settings: Settings) -> None:
    whole = csv(sample(s, "grow") for s in range(10))
    put(settings, "gpu/grow-1.csv", whole + sample(10, "grow")[:20], age_s=0)
    put(settings, "gpu/over-1.csv", csv(sample(s, "over") for s in range(10)))
    put(settings, "gpu/late-1.csv", csv([sample(s, "late") for s in (0, 1, 5000)]))
    shared = [
        sample(s, "shared", gpu, power=100 + 100 * gpu, energy=1000 + (100 + 100 * gpu) * s)
        for s in range(250)
        for gpu in (0, 1)
    ]
    put(settings, "gpu/shared-1.csv", csv(shared))
    for job, rate in (("alone", 8.0), ("left", 4.0), ("right", 2.0)):
        put(settings, f"progress/{job}-r0-0.jsonl", "\n".join(progress(job, rate, 250)) + "\n")
    put(settings, "progress/right-r0-1.jsonl", report(251, "right", 1.0) + "\n")
    put(settings, "progress/ghost-r0-0.jsonl", report(1, "ghost", 1.0) + "\n")
    smi = "index, power.draw [W]\n" + "".join(
        f"{gpu}, {50 + gpu} W\n" for _ in range(3) for gpu in (0, 1)
    )
    put(settings, "smi/smi.csv", smi, age_s=100)


def second_files(settings: Settings) -> None:
    with (settings.spool / "gpu/grow-1.csv").open("a") as stream:
        stream.write(sample(10, "grow")[20:] + "\n" + sample(11, "grow") + "\n")
    put(settings, "gpu/over-2.csv", csv(sample(s, "over") for s in range(5, 15)))
    put(settings, "gpu/over-3.csv", csv(sample(s, "over") for s in range(10)))
    put(settings, "gpu/late-2.csv", csv([sample(s, "late") for s in (100, 101, 4000)]))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    settings, store = opened(tmp_path_factory.mktemp("ingest"), STATE)
    first_files(settings)
    now = at(5010)
    first = take_in(settings, store, now)
    second_files(settings)
    second = take_in(settings, store, now)
    observed_now(settings, store, now)
    return World(settings, store, first, second)


def test_the_ledger_adds_up(world: World) -> None:
    assert adds_up(world.store)


def test_a_file_that_grew_goes_on_where_it_was_left(world: World) -> None:
    assert world.times("grow") == [float(s) for s in range(12)]
    assert ledger(world.store, "gpu/grow-1.csv")["rows_in"] == 12


class Killed(BaseException):
    """Stands for the end of the process between two batches."""


def test_a_run_that_ends_between_two_batches_of_a_file_leaves_the_rest_for_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(world.settings, "gpu/grow-7.csv", csv(sample(s, "grow") for s in range(20, 120)))
    module = sys.modules["gogh_core.telemetry.ingest"]
    monkeypatch.setattr(module, "BLOCK_BYTES", 1024)
    monkeypatch.setattr(module, "CHUNK_ROWS", 30)
    done: list[int] = []

    def once(*arguments: Any, **more: Any) -> Any:
        if done:
            raise Killed
        done.append(1)
        return take(*arguments, **more)

    monkeypatch.setattr(module, "take", once)
    with pytest.raises(Killed):
        take_in(world.settings, world.store, at(5010))
    assert 0 < len(world.times("grow")) - 12 < 100
    monkeypatch.setattr(module, "take", take)
    take_in(world.settings, world.store, at(5010))
    assert world.times("grow")[12:] == [float(s) for s in range(20, 120)]


def test_a_last_line_without_its_end_is_taken_when_the_file_rests(world: World) -> None:
    whole = csv(sample(s, "grow") for s in range(200, 203)).rstrip("\n")
    path = put(world.settings, "gpu/grow-8.csv", whole, age_s=0)
    take_in(world.settings, world.store, at(5010))
    assert world.times("grow")[-1] == 201.0
    os.utime(path, (time.time() - 600,) * 2)
    take_in(world.settings, world.store, at(5010))
    assert world.times("grow")[-1] == 202.0
    assert not take_in(world.settings, world.store, at(5010)).sources


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_a_file_that_is_only_touched_brings_nothing_and_is_known_again(
    world: World, kind: str
) -> None:
    path = put(world.settings, f"gpu/grow-9.{kind}", b"")
    if kind == "parquet":
        table = {"ts": [at(300.0)], "gpu_index": [0], "power_w": [90.0]}
        pq.write_table(pa.table(table), path)
    else:
        data = csv([sample(301 + len(kind), "grow")]).encode()
        path.write_bytes(data if kind == "csv" else gzip.compress(data))
    for age_s, rows in ((900, 1), (800, 0)):
        then = time.time() - age_s
        os.utime(path, (then, then))
        [source] = take_in(world.settings, world.store, at(5010)).sources
        assert source.rows_in == rows
        assert not take_in(world.settings, world.store, at(5010)).sources


def test_an_overlapping_range_is_taken_once(world: World) -> None:
    assert world.times("over")[:15] == [float(s) for s in range(15)]
    assert ledger(world.store, "gpu/over-2.csv")["rows_duplicate"] == 5


def test_the_same_file_under_another_name_brings_duplicates_only(world: World) -> None:
    found = ledger(world.store, "gpu/over-3.csv")
    assert (found["rows_in"], found["rows_duplicate"]) == (10, 10)


def test_a_file_that_is_replaced_and_put_back_brings_duplicates_only(world: World) -> None:
    for second in (20, 30, 20):
        put(world.settings, "gpu/over-9.csv", csv([sample(second, "over")]), age_s=second)
        take_in(world.settings, world.store, at(5010))
    found = ledger(world.store, "gpu/over-9.csv")
    assert (found["rows_clean"], found["rows_duplicate"]) == (2, 1)
    assert world.times("over")[-2:] == [20.0, 30.0]


def test_late_rows_are_taken_and_later_ones_kept_aside(world: World) -> None:
    assert world.times("late") == [0.0, 1.0, 4000.0, 5000.0]
    assert ledger(world.store, "gpu/late-2.csv")["rows_late"] == 2
    kept = rows_of(world.store, "SELECT epoch(ts) FROM late_rows ORDER BY ts")
    assert [row[0] - START.timestamp() for row in kept] == [100.0, 101.0]


def test_a_log_without_times_gets_them_from_the_file(world: World) -> None:
    found = rows_of(
        world.store, "SELECT epoch(ts), gpu_index FROM gpu_samples WHERE server_id = 'smi'"
    )
    assert not found  # its file is from today, the test's clock from January: that is the future
    assert ledger(world.store, "smi/smi.csv")["rows_quarantined"] == 6


def test_progress_of_an_unknown_job_is_held(world: World) -> None:
    assert ledger(world.store, "progress/ghost-r0-0.jsonl")["rows_quarantined"] == 1


def test_progress_that_goes_back_without_a_restart_is_held(world: World) -> None:
    rows = held(world.store, table="job_progress")
    assert any("progress never goes back" in row["reason"] for row in rows)


def observed(world: World, job: str) -> dict[str, Any]:
    names = "throughput, throughput_spread, samples, power_w, power_estimated, partner_job_id, gpus"
    found = rows_of(world.store, f"SELECT {names} FROM observations WHERE job_id = '{job}'")
    assert len(found) == 1
    return dict(zip(names.split(", "), found[0], strict=True))


def test_warm_up_and_checkpoint_do_not_bend_the_throughput(world: World) -> None:
    found = observed(world, "alone")
    assert found["throughput"] == pytest.approx(8.0, rel=0.001)
    assert found["samples"] > 150
    assert found["power_w"] == pytest.approx(100.0)
    assert not found["power_estimated"]


def test_a_shared_gpu_splits_its_power_and_says_so(world: World) -> None:
    left, right = observed(world, "left"), observed(world, "right")
    assert (left["throughput"], right["throughput"]) == pytest.approx((4.0, 2.0), rel=0.001)
    assert (left["partner_job_id"], right["partner_job_id"]) == ("right", "left")
    assert left["power_estimated"]
    assert left["power_w"] + right["power_w"] == pytest.approx(200.0)


def test_late_progress_changes_its_observation(world: World) -> None:
    before = observed(world, "alone")["samples"]
    lines = [report(s, "alone", 16000 + 8.0 * s) for s in range(260, 280)]
    put(world.settings, "progress/alone-r0-1.jsonl", "\n".join(lines) + "\n")
    take_in(world.settings, world.store, at(5010))
    assert observed_now(world.settings, world.store, at(5010)) >= 1
    assert observed(world, "alone")["samples"] > before


def test_late_samples_change_the_power_of_the_window_they_fall_into(world: World) -> None:
    before = observed(world, "alone")["power_w"]
    late = [sample(s + 0.5, "shared", 0, power=200) for s in range(250)]
    put(world.settings, "gpu/shared-2.csv", csv(late))
    take_in(world.settings, world.store, at(5010))
    assert ledger(world.store, "gpu/shared-2.csv")["rows_clean"] == 250
    assert observed_now(world.settings, world.store, at(5010)) >= 1
    assert observed(world, "alone")["power_w"] > 1.2 * before
    assert observed_now(world.settings, world.store, at(5010)) == 0, "nothing is left to compute"


def test_a_repaired_row_is_readmitted_through_its_contract(world: World) -> None:
    put(
        world.settings,
        "gpu/s1-1.csv",
        csv([sample(s, "s1") for s in range(5)] + [sample(9, "s1", power=-7)]),
    )
    take_in(world.settings, world.store, at(5010))
    [row] = [row for row in held(world.store) if row["source"] == "gpu/s1-1.csv"]
    assert (row["column_name"], row["value"], row["line"]) == ("power_w", "-7.0", 7)
    again = readmit(world.store, world.settings, [row["quarantine_id"]], now=at(5011))
    assert list(again.still_held) == [row["quarantine_id"]]
    done = readmit(
        world.store,
        world.settings,
        [row["quarantine_id"][:10]],
        now=at(5012),
        repaired={"power_w": "70"},
    )
    assert done.readmitted == (row["quarantine_id"],)
    assert world.times("s1")[-1] == 9.0
    assert show(world.store, row["quarantine_id"])["status"] == "readmitted"
    assert adds_up(world.store)


def test_a_dropped_row_is_settled_and_not_deleted(world: World) -> None:
    [row] = [row for row in held(world.store) if row["source"] == "progress/ghost-r0-0.jsonl"]
    assert drop(world.store, [row["quarantine_id"]], now=at(5012)) == 1
    assert show(world.store, row["quarantine_id"])["status"] == "dropped"
    with pytest.raises(InvalidInput):
        show(world.store, "ffffffffff")


def test_a_bad_record_is_held_and_nothing_is_planned_with_it(world: World) -> None:
    bad = state_of([*SERVERS, ("odd", "h999", 8)], [*JOBS, ("lost", (Slot("odd", (0,)),))])
    found = record_state(world.store, world.settings, bad, now=at(5020))
    assert found.rows_quarantined >= 2
    trust = trusted(world.store)
    assert set(trust.held_servers) == {"odd"}
    assert set(trust.held_jobs) == {"lost"}
    left = trust.apply(bad)
    assert "odd" not in {status.server.id for status in left.servers}
    assert "lost" not in {status.job.id for status in left.jobs}
    record_state(world.store, world.settings, STATE, now=at(5030))
    good = state_of([*SERVERS, ("odd", "a100", 8)], [*JOBS, ("lost", (Slot("odd", (0,)),))])
    record_state(world.store, world.settings, good, now=at(5040))
    assert not trusted(world.store).held_servers


def test_a_job_that_moved_in_the_records_has_events(world: World) -> None:
    moved = state_of(SERVERS, [("alone", (Slot("grow", (2,)),)), *JOBS[1:]], now=at(6000))
    jobs = tuple(replace(status, since=at(5990)) for status in moved.jobs)
    record_state(world.store, world.settings, replace(moved, jobs=jobs), now=at(6000))
    events = rows_of(
        world.store,
        "SELECT event, server_id FROM job_events WHERE job_id = 'alone' "
        f"AND ts = '{at(5990).isoformat()}' ORDER BY event",
    )
    assert events == [("started", "grow"), ("stopped", "shared")]


def receipt(store: Store, run: int) -> tuple[int, dict[str, float]]:
    """One file of each of three servers, written at the same moment; one clock is 4 s ahead.

    How many different times they tell after correction, and the skews that were corrected.
    """
    received = at(1000.0 * run + 10)
    names = ("a", "b", "fast")
    batch = [
        Piece(f"gpu/{name}-{run}.csv", "gpu_samples", pa.table({}), "", "", "", received=received)
        for name in names
    ]
    ts = [at(1000.0 * run + (4.0 if name == "fast" else 0.0)) for name in names]
    rows = pa.table(
        {
            "part": pa.array([0, 1, 2], pa.int32()),
            "server_id": list(names),
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
        }
    )
    with store.write() as connection:
        clocks = Clocks(connection)
        corrected = clocks.corrected(rows, batch)
        clocks.keep(connection)
        skews = clocks.settle(connection, at(1000.0 * run))
    return len(set(corrected["ts"].to_pylist())), skews


def test_a_clock_that_is_ahead_is_corrected_after_three_receipts(world: World) -> None:
    for run in range(3):
        assert receipt(world.store, run) == (2, {})
    assert receipt(world.store, 3) == (1, {"fast": 4.0})


def test_only_old_files_that_were_wholly_taken_leave_the_spool(world: World) -> None:
    settings, store = world.settings, world.store
    weeks_s = 20 * 86_400.0
    data = csv(sample(s, "over") for s in range(40, 44))
    old = put(settings, "gpu/over-40.csv", data, age_s=weeks_s)
    young = put(settings, "gpu/over-41.csv", data)
    refused = put(settings, "gpu/over-42.csv", "watt\n1\n", age_s=weeks_s)
    take_in(settings, store, at(5010))
    unseen = put(settings, "gpu/over-43.csv", data, age_s=weeks_s)
    grown = put(settings, "gpu/over-44.csv", data, age_s=weeks_s)
    take_in(settings, store, at(5010))
    put(settings, "gpu/over-44.csv", data + sample(44, "over") + "\n", age_s=weeks_s)
    unseen.rename(settings.spool / "gpu/over-45.csv")
    assert cleaned(settings, store) == 1
    assert [path.exists() for path in (old, young, refused, grown)] == [False, True, True, True]
    assert (settings.spool / "gpu/over-45.csv").exists()
    with store.read() as connection:
        known = known_files(connection)
    assert not {"gpu/over-40.csv", "gpu/over-43.csv"} & set(known)
    put(settings, "gpu/over-40.csv", data, age_s=weeks_s)
    [again] = take_in(settings, store, at(5010)).sources
    assert again.rows_duplicate == again.rows_in - 1, "only what had grown is new"
    assert cleaned(settings, store) == 3


def test_a_file_that_cannot_be_removed_is_told_and_kept_in_mind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(world.settings, "gpu/over-50.csv", csv([sample(50, "over")]), age_s=20 * 86_400.0)
    take_in(world.settings, world.store, at(5010))

    def forbidden(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    told: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.unlink", forbidden)
        assert cleaned(world.settings, world.store, told.append) == 0
    assert told == ["gpu/over-50.csv was taken in but cannot be removed (Permission denied)"]
    assert not take_in(world.settings, world.store, at(5010)).sources
    assert cleaned(world.settings, world.store) == 1


def test_one_call_takes_in_records_spool_and_observations(tmp_path_factory: Any) -> None:
    settings, store = opened(tmp_path_factory.mktemp("whole"))
    put(settings, "progress/alone-r0-0.jsonl", "\n".join(progress("alone", 8.0, 200)) + "\n")
    now = START + timedelta(seconds=300)
    report_ = ingest(store, settings, now=now, state=STATE)
    assert report_.ok
    assert {source.name for source in report_.sources} == {"records", "progress"}
    assert report_.observations == 1
    assert json.loads(json.dumps(report_.to_dict()))["ok"]


def test_a_refused_file_leaves_the_spool_a_week_after_it_was_refused(world: World) -> None:
    """However old the file says it is: nobody has seen before that it is refused."""
    settings, store = world.settings, world.store
    refused = put(settings, "gpu/over-60.csv", "watt\n1\n", age_s=20 * 86_400.0)
    link = settings.spool / "gpu/over-61.csv"
    link.symlink_to(settings.spool / "gpu/over-60.csv")
    odd = settings.spool / "gpu/over-62\n.csv"
    odd.write_text("")
    take_in(settings, store, at(5010))
    week_s = settings.telemetry.spool_keep_s
    assert cleaned(settings, store, now=at(5010 + week_s - 60)) == 0
    assert refused.exists()
    assert cleaned(settings, store, now=at(5010 + week_s + 60)) >= 3
    assert not any(os.path.lexists(path) for path in (refused, link, odd))
    with store.read() as connection:
        assert not {path for path in known_files(connection) if "/over-6" in path}
    assert ledger(store, "gpu/over-60.csv")["status"] == ["refused"]
