"""Kills during ingest of a known stream; run as a program: `python kills.py FOLDER RANDOM_KILLS`.

Everything is imported once, then each run is a fork that kills itself at a statement, or is killed
after a random time. After a kill the tables must be exactly those of the last commit; after one
more run, exactly those of an undisturbed run. Every point is printed as a JSON line.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import great_expectations  # noqa: F401  (imported here so that no fork has to)
import pandas  # noqa: F401

import gogh_core.contracts
from gogh_core.contracts.suites import load_suites
from gogh_core.domain import Slot
from gogh_core.settings import Settings, load
from gogh_core.store import Store
from gogh_core.telemetry import ingest, record_state
from tests.telemetry.world import at, csv, put, sample, stamp, state_of

TABLES = [
    *("gpu_samples", "job_progress", "job_events", "quarantine", "late_rows", "ingest_batches"),
    *("spool_files", "high_water", "touched", "observations", "clock_offsets", "clock_receipts"),
    "contract_runs",
]
NOW = at(4000)


def in_small_batches() -> None:
    """A file of a few kilobytes is read in blocks and stored in batches, as a large one is."""
    sys.modules["gogh_core.telemetry.ingest"].CHUNK_ROWS = 25  # type: ignore[attr-defined]
    sys.modules["gogh_core.telemetry.ingest"].BLOCK_BYTES = 1024  # type: ignore[attr-defined]


def settings_of(home: Path, contracts: Path, keep_s: float = 3600.0) -> Settings:
    return load(
        home=home,
        contracts={"directory": contracts},
        store={"threads": 1},
        telemetry={"spool_keep_s": keep_s},
    )


def small_suites(folder: Path) -> None:
    """The real helper queries with a few expectations each: a run takes a fraction of a second."""
    folder.mkdir()
    keep = {"parse_error", "power_w", "ts", "steps_gained", "throughput"}
    for table, suite in load_suites(load(home=folder)).items():
        checks = [c for c in suite.checks if set(c.columns) & keep][:3]
        entries = [
            {"type": c.type, "kwargs": dict(c.kwargs), "meta": {"level": c.level, "says": c.says}}
            for c in checks
        ]
        text = json.dumps({"name": table, "expectations": entries}, indent=1)
        (folder / f"{table}.json").write_text(text)


def prepare(settings: Settings) -> None:
    jobs = [("j1", (Slot("a", (0,)),)), ("j2", (Slot("a", (0,)),))]
    state = state_of([("a", "v100", 2), ("b", "t4", 2)], jobs)
    store = Store(settings)
    store.migrate()
    record_state(store, settings, state, now=state.at)
    rows = [sample(s, "a", g) for s in range(120) for g in (0, 1)]
    whole = csv([*rows, sample(120, "a", power=-5), *rows[:7], "torn"])
    put(settings, "gpu/a-1.csv", whole, age_s=7200)  # old enough to be removed by the kills' runs
    put(settings, "gpu/b-1.csv", csv(sample(s, "b", 0, "t4", 50) for s in (3700, 3701)))
    reports = [
        json.dumps({"ts": stamp(s), "job_id": job, "steps": s * 2.0})
        for s in range(120)
        for job in ("j1", "j2")
    ]
    put(settings, "progress/all-1.jsonl", "\n".join([*reports, "no json"]) + "\n")


def second_files(settings: Settings) -> None:
    """The stream of the kills: overlapping, late, too late, bad and torn rows, and progress."""
    rows = [
        *(sample(s, "a") for s in range(118, 160)),
        sample(60.5, "a"),
        sample(161, "a", power=-1),
    ]
    put(settings, "gpu/a-2.csv", csv([*rows, "torn"]))
    put(settings, "gpu/b-2.csv", csv([sample(5, "b", 0, "t4", 50), sample(3650, "b", 0, "t4", 50)]))
    report = {"ts": stamp(121), "job_id": "j1", "steps": 244.0}
    put(settings, "progress/all-2.jsonl", json.dumps(report) + "\n")


def forked(work: Callable[[], Any], wait_s: float | None = None) -> tuple[int, Any]:
    """Run in a fork; its exit status and what it returned (through a pipe)."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code = 1
        try:
            answer = json.dumps(work(), default=str).encode()
            with os.fdopen(writer, "wb") as stream:
                stream.write(answer)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    if wait_s is not None:
        time.sleep(wait_s)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reader, "rb") as stream:
        answer = stream.read()
    _, status = os.waitpid(child, 0)
    return status, json.loads(answer) if answer else None


def run(settings: Settings, kill_at: int | None = None) -> dict[str, Any]:
    """One ingest; statements and commits are counted, and it kills itself where it is told to."""
    counted: list[str] = []

    def watched(name: str) -> None:
        kind = duckdb.DuckDBPyConnection
        original = getattr(kind, name)

        def call(self: Any, *args: Any, **more: Any) -> Any:
            if kill_at == len(counted):
                os.kill(os.getpid(), signal.SIGKILL)
            text = str(args[0]).strip().splitlines()[0][:60] if args else ""
            counted.append(f"{name} {text}".strip())
            answer = original(self, *args, **more)
            if name == "commit" and kill_at == -len(counted):
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        setattr(kind, name, call)

    for name in ("sql", "execute", "begin", "commit"):
        watched(name)
    in_small_batches()
    store = Store(settings)
    report = ingest(store, settings, now=NOW)
    assert not [fault for fault in report.faults if "unavailable" in fault], report.faults
    return {"statements": counted}


def dump(settings: Settings) -> str:
    """A fingerprint of all tables, row by row."""
    store = Store(settings)
    digest = hashlib.sha256()
    with store.read() as connection:
        for table in TABLES:
            rows = connection.execute(f"SELECT * FROM {table}").fetchall()
            digest.update(json.dumps([table, sorted(map(str, rows))]).encode())
    return digest.hexdigest()


def main(folder: Path, random_kills: int, seed: int) -> int:
    contracts = folder / "contracts"
    small_suites(contracts)
    base = folder / "base"

    def fresh(name: str) -> Settings:
        home = folder / name
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(base, home)
        return settings_of(home, contracts)

    status, _ = forked(lambda: prepare(settings_of(base, contracts)))
    assert status == 0
    keeping = settings_of(base, contracts, keep_s=1e9)
    status, _ = forked(lambda: ingest(Store(keeping), keeping, now=at(3990)).ok)
    assert status == 0
    # What the kills are about: the second stream, on top of what is stored.
    second_files(settings_of(base, contracts))
    began = time.monotonic()
    reference = fresh("reference")
    status, answer = forked(lambda: run(reference))
    assert status == 0, "the undisturbed run failed"
    full_s = time.monotonic() - began
    statements = answer["statements"]
    status, whole = forked(lambda: dump(reference))
    commits = [n for n, text in enumerate(statements) if text == "commit"]
    states = [forked(lambda: dump(settings_of(base, contracts)))[1]]
    for commit in commits:
        home = fresh("state")
        forked(lambda c=commit, h=home: run(h, -(c + 1)))
        states.append(forked(lambda h=home: dump(h))[1])
    assert states[-1] == whole
    bad = 0
    for point in range(len(statements)):
        home = fresh("killed")
        status, _ = forked(lambda p=point, h=home: run(h, p))
        assert os.WIFSIGNALED(status), f"statement {point} was not reached"
        expected = states[sum(commit < point for commit in commits)]
        good = forked(lambda h=home: dump(h))[1] == expected
        if statements[point] == "commit":  # the worst moment: the next run has to make it good
            forked(lambda h=home: run(h))
            good = good and forked(lambda h=home: dump(h))[1] == whole
        print(json.dumps({"point": point, "before": statements[point], "good": good}), flush=True)
        bad += not good
    rng = random.Random(seed)
    for number in range(random_kills):
        home = fresh("killed")
        after_s = rng.uniform(0, full_s)
        forked(lambda h=home: run(h), wait_s=after_s)
        good = forked(lambda h=home: dump(h))[1] in states
        forked(lambda h=home: run(h))
        good = good and forked(lambda h=home: dump(h))[1] == whole
        print(
            json.dumps({"random": number, "after_s": round(after_s, 3), "good": good}), flush=True
        )
        bad += not good
    total = {"boundaries": len(statements), "commits": len(commits), "random": random_kills}
    print(json.dumps({**total, "bad": bad}))
    return 1 if bad else 0


if __name__ == "__main__":
    assert gogh_core.contracts.__all__
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
