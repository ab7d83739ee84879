"""Rows from the future are kept, and taken when their time comes."""

from __future__ import annotations

import json
from pathlib import Path

from gogh_core.domain import Slot
from gogh_core.telemetry import ingest
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
)

COUNT = "SELECT count(*) FROM gpu_samples"


def test_a_clock_set_back_by_a_minute_loses_no_row(tmp_path: Path) -> None:
    settings, store = opened(tmp_path, state_of([("s1", "v100", 4)]))
    put(settings, "gpu/s1-1.csv", csv(sample(s) for s in range(40)))
    report = ingest(store, settings, now=at(-20))
    assert report.ok, report.faults
    assert rows_of(store, COUNT) == [(0,)]
    found = ledger(store, "gpu/s1-1.csv")
    assert (found["rows_in"], found["rows_late"], found["rows_quarantined"]) == (40, 40, 0)
    ingest(store, settings, now=at(15))
    [(some,)] = rows_of(store, COUNT)
    assert 15 <= some < 40
    report = ingest(store, settings, now=at(60))
    assert report.ok, report.faults
    assert rows_of(store, COUNT) == [(40,)]
    assert rows_of(store, "SELECT count(*) FROM quarantine") == [(0,)]
    assert adds_up(store)
    ingest(store, settings, now=at(120))
    assert rows_of(store, COUNT) == [(40,)]


def test_an_early_row_that_came_again_in_time_is_stored_once(tmp_path: Path) -> None:
    settings, store = opened(tmp_path, state_of([("s1", "v100", 4)]))
    put(settings, "gpu/s1-1.csv", csv(sample(s) for s in range(20)))
    ingest(store, settings, now=at(-30))
    put(settings, "gpu/s1-2.csv", csv(sample(s) for s in range(20)))
    ingest(store, settings, now=at(60))
    ingest(store, settings, now=at(70))
    assert rows_of(store, COUNT) == [(20,)]
    assert adds_up(store)


def test_early_reports_become_observations_in_their_time(tmp_path: Path) -> None:
    state = state_of([("s1", "v100", 4)], [("j1", (Slot("s1", (0,)),))])
    settings, store = opened(tmp_path, state)
    lines = (
        json.dumps({"ts": stamp(s), "job_id": "j1", "steps": 2.0 * s}) + "\n" for s in range(250)
    )
    put(settings, "progress/j1-r0-1.jsonl", "".join(lines))
    ingest(store, settings, now=at(-30))
    assert rows_of(store, "SELECT count(*) FROM job_progress") == [(0,)]
    ingest(store, settings, now=at(310))
    assert rows_of(store, "SELECT count(*) FROM job_progress") == [(250,)]
    assert rows_of(store, "SELECT round(throughput, 1) FROM observations") == [(2.0,)]


def test_a_row_from_years_ahead_is_held_as_wrong(tmp_path: Path) -> None:
    settings, store = opened(tmp_path, state_of([("s1", "v100", 4)]))
    put(settings, "gpu/s1-1.csv", csv([*(sample(s) for s in range(20)), sample(1e8)]))
    ingest(store, settings, now=at(60))
    found = ledger(store, "gpu/s1-1.csv")
    assert (found["rows_clean"], found["rows_quarantined"], found["rows_late"]) == (20, 1, 0)
