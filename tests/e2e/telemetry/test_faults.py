"""Ingest under faults: kills, a full disk, a locked database; always all rows, exactly once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest

from gogh_core.errors import StoreLocked
from gogh_core.store import now_utc
from tests.conftest import PROJECT
from tests.telemetry.world import at, csv, opened, put, rows_of, sample, state_of, take_in


def kill(folder: Path, random_kills: int, seed: int) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "tests/e2e/telemetry/kills.py", str(folder), str(random_kills), str(seed)],
        cwd=PROJECT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(PROJECT), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


@pytest.mark.e2e
def test_killed_at_every_statement_and_at_random_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    total = kill(tmp_path, 30, 1)
    assert total["bad"] == 0
    assert total["boundaries"] > 100


@pytest.mark.soak
def test_killed_200_times_at_random_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    total = kill(tmp_path, 200, 2)
    assert total["bad"] == 0


def hold(database: Path, seconds: float) -> subprocess.Popen[str]:
    """Another program that has the database open, as a person's DuckDB shell would."""
    text = (
        "import duckdb, sys, time; c = duckdb.connect(sys.argv[1]); print('held', flush=True); "
        "time.sleep(float(sys.argv[2]))"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", text, str(database), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == "held"
    return holder


def locked_for(tmp_path: Path, seconds: float) -> None:
    settings, store = opened(tmp_path / "home", state_of([("a", "v100", 1)]))
    put(settings, "gpu/a-1.csv", csv(sample(s, "a") for s in range(100)))
    holder = hold(settings.database, seconds)
    report = take_in(settings, store, at(200))
    holder.wait(timeout=120)
    assert report.ok
    assert rows_of(store, "SELECT count(*) FROM gpu_samples") == [(100,)]


@pytest.mark.e2e
def test_a_database_that_is_locked_for_a_while_is_waited_for(tmp_path: Path) -> None:
    locked_for(tmp_path, 5.0)


@pytest.mark.soak
def test_a_database_that_is_locked_for_a_minute_is_waited_for(tmp_path: Path) -> None:
    locked_for(tmp_path, 60.0)


@pytest.mark.e2e
def test_a_database_locked_for_too_long_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    state = state_of([("a", "v100", 1)])
    settings, store = opened(tmp_path / "home", state)
    put(settings, "gpu/a-1.csv", csv(sample(s, "a") for s in range(100)))
    store._timeout_s = 1.0
    holder = hold(settings.database, 600.0)
    try:
        with pytest.raises(StoreLocked, match=str(holder.pid)):
            take_in(settings, store, at(200))
    finally:
        holder.kill()
        holder.wait()
    store._timeout_s = 60.0
    assert take_in(settings, store, at(200)).rows_in == 100
    assert rows_of(store, "SELECT count(*) FROM gpu_samples") == [(100,)]


DISK_FULL = """
import json, resource, sys, time
from gogh_core.progress import Progress
spool = sys.argv[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))  # no file may be larger
progress = Progress("j1", spool, period_s=0.02)
troubled = ""
deadline = time.monotonic() + 60
while not troubled and time.monotonic() < deadline:
    progress.step()
    time.sleep(0.005)
    troubled = progress.trouble or ""
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for _ in range(20):
    progress.step()
progress.close()
print(json.dumps({"trouble": troubled, "steps": progress.steps, "left": progress.trouble}))
"""


@pytest.mark.e2e
def test_a_job_goes_on_when_the_spool_is_full_and_its_last_count_arrives(tmp_path: Path) -> None:
    spool = tmp_path / "home" / "spool"
    done = subprocess.run(
        [sys.executable, "-c", DISK_FULL, str(spool)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said = json.loads(done.stdout)
    assert said["trouble"]
    assert said["left"] is None
    settings, store = opened(tmp_path / "home")
    files = sorted((settings.spool / "progress").iterdir())
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert max(line["steps"] for line in lines) == said["steps"]
    report = take_in(settings, store, now_utc())
    assert report.ok
    found = rows_of(store, "SELECT max(steps), count(*) FROM job_progress")
    assert found[0] == (said["steps"], len({(line["ts"], line["event"]) for line in lines}))


@pytest.mark.e2e
def test_two_ingests_at_once_take_every_row_once(tmp_path: Path) -> None:
    settings, store = opened(tmp_path / "home", state_of([("a", "v100", 1)]))
    for number in range(5):
        rows = (sample(s, "a") for s in range(100 * number, 100 * number + 100))
        put(settings, f"gpu/a-{number}.csv", csv(rows))
    errors: list[BaseException] = []

    def work() -> None:
        try:
            take_in(settings, store, at(600))
        except (duckdb.Error, AssertionError) as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert not errors
    assert rows_of(store, "SELECT count(*), count(DISTINCT ts) FROM gpu_samples") == [(500, 500)]
    assert rows_of(store, "SELECT sum(rows_in) FROM ingest_batches WHERE source LIKE 'gpu/%'") == [
        (500,)
    ]
