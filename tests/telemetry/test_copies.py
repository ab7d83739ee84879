"""A row is a copy, or in the way of another, only of a row that is stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gogh_core.domain import Slot
from tests.telemetry.world import (
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

NO_SHRINKING = [phase for phase in Phase if phase.name != "shrink"]
GOOD = [sample(s, "s1") for s in range(20)]
GARBAGE = ["no,row,at,all"] * 30


def stored(home: Path, first: Sequence[str], second: Sequence[str] = GOOD) -> tuple[int, int]:
    """Rows stored in all, and of them those of the second file."""
    settings, store = opened(home, state_of([("s1", "v100", 4)]))
    put(settings, "gpu/aa-evil.csv", csv(first))
    put(settings, "gpu/zz-good.csv", csv(second))
    take_in(settings, store, at(60))
    assert adds_up(store)
    [(count,)] = rows_of(store, "SELECT count(*) FROM gpu_samples")
    return count, ledger(store, "gpu/zz-good.csv")["rows_clean"]


def test_copies_of_rows_refused_with_their_file_are_stored(tmp_path: Path) -> None:
    assert stored(tmp_path, [*GOOD, *GARBAGE]) == (20, 20)


def test_rows_that_differ_from_refused_ones_at_the_same_time_are_stored(tmp_path: Path) -> None:
    others = [sample(s, "s1", power=77.0) for s in range(20)]
    assert stored(tmp_path, [*others, *GARBAGE]) == (20, 20)


def test_a_counter_in_a_refused_file_does_not_make_those_of_others_run_back(tmp_path: Path) -> None:
    ahead = [sample(s + 0.5, "s1", energy=9e9) for s in range(20)]
    assert stored(tmp_path, [*ahead, *GARBAGE]) == (20, 20)


def test_copies_of_single_rows_that_fail_are_stored(tmp_path: Path) -> None:
    wrong_type = [sample(s, "s1", kind="t4", power=100.0) for s in range(3)]
    assert stored(tmp_path, [*wrong_type, *GOOD[3:]])[0] == 20


def test_rows_beside_single_rows_that_fail_at_the_same_time_are_stored(tmp_path: Path) -> None:
    absurd = [sample(s, "s1", power=4000.0) for s in range(3)]
    assert stored(tmp_path, [*absurd, *GOOD[3:]])[0] == 20


def test_a_copy_of_a_stored_row_is_a_duplicate(tmp_path: Path) -> None:
    assert stored(tmp_path, GOOD) == (20, 0)


@pytest.mark.parametrize("folder", ["progress", "events"])
def test_copies_of_refused_reports_and_events_are_stored(tmp_path: Path, folder: str) -> None:
    state = state_of([("s1", "v100", 4)], [("j1", (Slot("s1", (0,)),))])
    settings, store = opened(tmp_path, state)
    lines = [
        json.dumps(
            {"ts": stamp(s), "job_id": "j1", "steps": s, "event": None}
            if folder == "progress"
            else {"ts": stamp(s), "job_id": "j1", "event": "checkpointed"}
        )
        for s in range(1, 21)
    ]
    put(settings, f"{folder}/aa-1.jsonl", "\n".join([*lines, *["{}"] * 30]) + "\n")
    put(settings, f"{folder}/zz-1.jsonl", "\n".join(lines) + "\n")
    take_in(settings, store, at(60))
    assert ledger(store, f"{folder}/zz-1.jsonl")["rows_clean"] == 20
    assert adds_up(store)


ROWS = st.tuples(
    st.integers(0, 2),
    st.sampled_from([50.0, 100.0, 4000.0]),
    st.sampled_from(["v100", "t4"]),
).map(lambda r: sample(r[0], "s1", power=r[1], kind=r[2], energy=1000 + 100 * r[0]))


@given(files=st.lists(st.lists(st.one_of(ROWS, st.just(GARBAGE[0])), max_size=12), max_size=4))
@settings(
    max_examples=12, deadline=None, phases=NO_SHRINKING, suppress_health_check=list(HealthCheck)
)
def test_no_time_of_which_a_good_row_came_in_a_good_file_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[str]]
) -> None:
    config, store = opened(tmp_path_factory.mktemp("copies"), state_of([("s1", "v100", 4)]))
    for number, rows in enumerate(files):
        put(config, f"gpu/s1-{number}.csv", csv(rows))
    put(config, "gpu/zz-1.csv", csv(GOOD))
    take_in(config, store, at(60))
    assert adds_up(store)
    assert rows_of(store, "SELECT count(*), count(DISTINCT ts) FROM gpu_samples") == [(20, 20)]


def test_copies_of_rows_that_moved_to_parquet_are_duplicates(tmp_path: Path) -> None:
    """A server that is off and a job that has ended have no newer rows: theirs are never late."""
    state = state_of([("s1", "v100", 4)], [("j1", (Slot("s1", (0,)),))])
    config, store = opened(tmp_path, state)
    reports = [json.dumps({"ts": stamp(s), "job_id": "j1", "steps": s}) for s in range(1, 21)]
    for name in ("a-1", "b-1"):
        put(config, f"gpu/{name}.csv", csv(GOOD))
        put(config, f"progress/{name}.jsonl", "\n".join(reports) + "\n")
        take_in(config, store, at(60))
        store.age(at(86_400 / 2))
    for table in ("gpu_samples", "job_progress"):
        assert rows_of(store, f"SELECT count(*) FROM {table}") == [(0,)]
        found = f"SELECT count(*), count(DISTINCT ts) FROM {table}_all"
        assert rows_of(store, found) == [(20, 20)], table
    assert ledger(store, "progress/b-1.jsonl")["rows_duplicate"] == 20
