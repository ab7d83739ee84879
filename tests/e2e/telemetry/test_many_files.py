"""10,000 small files: few batches, every row once, and nothing to do the second time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.telemetry.world import HEADER, adds_up, at, opened, rows_of, sample, state_of, take_in

FILES = 10_000


@pytest.mark.e2e
def test_ten_thousand_small_files_are_taken_once(tmp_path: Path) -> None:
    settings, store = opened(tmp_path / "home", state_of([("s1", "v100", 8)]))
    folder = settings.spool / "gpu"
    folder.mkdir(parents=True)
    then = time.time() - 600
    for number in range(FILES):
        path = folder / f"s1-{number}.csv"
        path.write_text(f"{HEADER}\n{sample(number // 8, gpu=number % 8)}\n")
        os.utime(path, (then, then))
    report = take_in(settings, store, at(FILES // 8 + 10))
    assert report.ok, report.faults
    assert (report.rows_in, report.sources[0].rows_clean) == (FILES, FILES)
    assert rows_of(store, "SELECT count(*) FROM gpu_samples") == [(FILES,)]
    taken = "SELECT count(*) FROM ingest_batches WHERE source LIKE 'gpu/%'"
    assert rows_of(store, taken) == [(FILES,)]
    assert adds_up(store)
    assert not take_in(settings, store, at(FILES // 8 + 20)).sources
