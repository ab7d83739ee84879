"""Two processes write, age and publish while five read: no error, and no row lost or doubled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gogh_core.settings import load
from gogh_core.store import Store
from tests.e2e.store.crowd import ROWS


def crowd(home: Path, seconds: float) -> tuple[list[int], list[int]]:
    store = Store(load(home=home))
    store.migrate()
    store.publish()
    roles = [("write", 0), ("write", 1), *(("read", number) for number in range(5))]
    program = [sys.executable, "-m", "tests.e2e.store.crowd"]
    people = [
        subprocess.Popen(
            [*program, role, str(home), str(seconds), str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for role, number in roles
    ]
    told = [person.communicate(timeout=seconds + 240) for person in people]
    errors = [words for _, words in told if words]
    assert [person.returncode for person in people] == [0] * len(people), errors
    done = [int(words) for words, _ in told]
    return done[:2], done[2:]


def every_row_once(home: Path, batches: list[int]) -> None:
    store = Store(load(home=home))
    with store.read() as connection:
        found = connection.sql(
            "SELECT server_id, count(*), count(DISTINCT gpu_index) FROM gpu_samples_all GROUP BY 1"
        ).fetchall()
    names = [f"w{writer}-{number}" for writer in (0, 1) for number in range(batches[writer])]
    assert sorted(found) == sorted((name, ROWS, ROWS) for name in names)


@pytest.mark.e2e
def test_two_write_and_five_read_for_thirty_seconds(tmp_path: Path) -> None:
    batches, answers = crowd(tmp_path, 30)
    print(f"batches written {batches}, answers read {answers}")
    every_row_once(tmp_path, batches)
    assert min(batches) > 0
    assert min(answers) > 0


@pytest.mark.soak
def test_two_write_and_five_read_for_ten_minutes(tmp_path: Path) -> None:
    batches, answers = crowd(tmp_path, 600)
    print(f"batches written {batches}, answers read {answers}")
    every_row_once(tmp_path, batches)
