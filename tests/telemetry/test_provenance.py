"""A report of progress counts when the job's owner wrote it, or GOGH's own user."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gogh_core.domain import ClusterState, Slot
from gogh_core.progress import Progress
from gogh_core.settings import Settings
from gogh_core.store import Store
from gogh_core.telemetry import IngestReport, ingest
from tests.conftest import PROJECT
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

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs files of other users")
OWNER, OTHER = 1, 2  # daemon and bin, which every system has


def owned(owner: str = "daemon") -> ClusterState:
    state = state_of([("s1", "v100", 4)], [("j1", (Slot("s1", (0,)),)), ("j2", ())])
    jobs = tuple(replace(s, job=replace(s.job, owner=owner)) for s in state.jobs)
    return replace(state, jobs=jobs)


def reports(job: str = "j1", rate: float = 2.0, seconds: int = 250) -> str:
    rows = ({"ts": stamp(s), "job_id": job, "steps": rate * s} for s in range(seconds))
    return "".join(json.dumps(row) + "\n" for row in rows)


def leave(settings: Settings, name: str, data: str, uid: int) -> Path:
    path = put(settings, f"progress/{name}", data)
    os.chown(path, uid, uid)
    return path


def observed(home: Path, *files: tuple[str, str, int]) -> tuple[Store, IngestReport]:
    settings, store = opened(home, owned())
    put(settings, "gpu/s1-1.csv", csv(sample(s) for s in range(250)))
    for name, data, uid in files:
        leave(settings, name, data, uid)
    report = ingest(store, settings, now=at(310))
    assert adds_up(store)
    return store, report


def throughput(store: Store) -> float:
    [(found,)] = rows_of(store, "SELECT throughput FROM observations WHERE job_id = 'j1'")
    return float(found)


@as_root
def test_the_owner_of_a_job_speaks_for_it(tmp_path: Path) -> None:
    store, report = observed(tmp_path, ("j1-r0-0.jsonl", reports(), OWNER))
    assert report.ok, report.faults
    assert throughput(store) == pytest.approx(2.0, rel=0.01)


@as_root
@pytest.mark.parametrize("name", ["aa-r0-0.jsonl", "j1-r0-1.jsonl", "zz.jsonl"])
@pytest.mark.parametrize("rate", [20.0, 0.2, 0.0])
def test_nobody_else_speaks_for_it(tmp_path: Path, name: str, rate: float) -> None:
    files = ("j1-r0-0.jsonl", reports(), OWNER), (name, reports(rate=rate), OTHER)
    store, report = observed(tmp_path, *files)
    assert throughput(store) == pytest.approx(2.0, rel=0.01)
    assert ledger(store, f"progress/{name}")["rows_clean"] == 0
    assert any("owner of its job" in fault for fault in report.faults)


@as_root
def test_reports_by_others_come_to_nothing_when_they_come_first(tmp_path: Path) -> None:
    settings, store = opened(tmp_path, owned())
    leave(settings, "j1-r0-9.jsonl", reports(rate=50.0), OTHER)
    ingest(store, settings, now=at(300))
    leave(settings, "j1-r0-0.jsonl", reports(), OWNER)
    ingest(store, settings, now=at(310))
    assert ledger(store, "progress/j1-r0-0.jsonl")["rows_clean"] == 250
    assert throughput(store) == pytest.approx(2.0, rel=0.01)


@as_root
def test_samples_and_events_come_from_gogh_and_its_agents_only(tmp_path: Path) -> None:
    settings, store = opened(tmp_path, owned(), agents=["bin"])
    line = json.dumps({"ts": stamp(5), "job_id": "j1", "event": "finished"}) + "\n"
    for folder, name, data in (
        ("gpu", "s1-1.csv", csv([sample(1)])),
        ("smi", "s1.csv", csv([sample(2)])),
        ("events", "1.jsonl", line),
    ):
        os.chown(put(settings, f"{folder}/{name}", data), OWNER, OWNER)
    os.chown(put(settings, "gpu/s1-2.csv", csv([sample(3)])), OTHER, OTHER)
    report = ingest(store, settings, now=at(60))
    assert len([fault for fault in report.faults if "is written by daemon" in fault]) == 3
    assert rows_of(store, "SELECT count(*) FROM gpu_samples") == [(1,)]
    assert rows_of(store, "SELECT count(*) FROM job_events WHERE event = 'finished'") == [(0,)]


def test_a_file_that_anybody_can_write_is_not_believed(tmp_path: Path) -> None:
    settings, store = opened(tmp_path, owned())
    put(settings, "gpu/s1-1.csv", csv([sample(1)])).chmod(0o666)
    report = ingest(store, settings, now=at(60))
    assert any("written by anybody" in fault for fault in report.faults)
    assert rows_of(store, "SELECT count(*) FROM gpu_samples") == [(0,)]


@pytest.mark.parametrize(
    "name",
    ["j1-r0-.jsonl", "j1-r0-x.jsonl", "j1-r0-².jsonl", f"j1-r0-{'9' * 200}.jsonl", "j1-r0-0.jsonl"],
)
def test_no_file_of_another_silences_a_client(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "progress"
    folder.mkdir()
    (folder / name).touch()
    progress = Progress("j1", tmp_path, period_s=0.01)
    progress.step()
    progress.close()
    assert progress.trouble is None
    assert progress.path is not None
    assert progress.path.name != name
    assert json.loads(progress.path.read_text().splitlines()[-1])["steps"] == 1


def test_a_spool_outside_of_home_takes_progress_of_all_and_shows_it_to_none(
    tmp_path: Path,
) -> None:
    spool = tmp_path / "shared"
    spool.mkdir()
    settings, store = opened(tmp_path / "home", owned(), spool=spool)
    ingest(store, settings, now=at(60))
    assert stat.S_IMODE((spool / "progress").stat().st_mode) == 0o1733
    inside, own = opened(tmp_path / "other", owned())
    put(inside, "gpu/s1-1.csv", csv([sample(1)]))
    ingest(own, inside, now=at(60))
    assert not (inside.spool / "progress").exists()


AS_OWNER = """
import os, sys
from gogh_core.progress import Progress
os.setgroups([]); os.setgid(1); os.setuid(1); os.umask(0o077)
progress = Progress("j1", sys.argv[1], period_s=0.05)
progress.step(5)
progress.close()
print(progress.trouble, progress.path.name)
"""


@as_root
def test_a_client_of_another_user_reports_through_the_shared_spool(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="gogh-spool-") as folder:
        os.chmod(folder, 0o711)
        spool = Path(folder) / "shared"
        spool.mkdir()
        settings, store = opened(tmp_path / "home", owned(), spool=spool)
        ingest(store, settings, now=at(10))
        done = subprocess.run(
            [sys.executable, "-c", AS_OWNER, str(spool)],
            capture_output=True,
            text=True,
            check=True,
            cwd=PROJECT,
        )
        assert done.stdout.startswith("None j1-r0-"), done.stdout + done.stderr
        report = ingest(store, settings, now=datetime.now(UTC) + timedelta(seconds=1))
        [source] = [s for s in report.sources if s.name == "progress"]
        assert source.rows_clean >= 1, report.faults
