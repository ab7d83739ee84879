"""An owner whose jobs lie about their progress does not move the plans of the others.

One embedded cluster is run for some windows; then it goes on in copies, in which one owner's
reports are true, ten times too fast, ten times too slow, or standing still.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gogh_core.cluster import open_manager
from gogh_core.planning import run_cycle
from gogh_core.planning.watts import watts_by_job
from gogh_core.settings import Settings, SimulationSettings, load
from gogh_core.store import Store

pytestmark = pytest.mark.e2e
LIAR = "students"
BEFORE, AFTER = 4, 2
APART = 0.01 + 2 * 0.01
"""One per cent, and what two plans within the asked gap of one per cent may differ by."""


@dataclass
class Seen:
    watts: float
    kept: float
    observed: float
    """The most that observations of one of the liar's jobs at one place differ by."""


def settings_of(home: Path) -> Settings:
    quiet = {"garbage_rate": 0.0, "gap_rate": 0.0, "late_rate": 0.0}
    simulation = SimulationSettings(servers=10, jobs_per_hour=60, **quiet)
    return load(home=home, simulation=simulation)


class Lies:
    """Changes the reports of some jobs in the files of the spool, in place."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.first: dict[tuple[str, int], float] = {}

    def __call__(self, spool: Path, jobs: set[str]) -> None:
        for path in sorted((spool / "progress").glob("*.jsonl")):
            facts = path.stat()
            path.write_text("".join(self.line(text, jobs) for text in path.open()))
            os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))

    def line(self, text: str, jobs: set[str]) -> str:
        row: dict[str, Any] = json.loads(text)
        if row["job_id"] not in jobs or row.get("lied"):
            return text
        key = row["job_id"], row.get("rank", 0)
        first = self.first.setdefault(key, row["steps"])
        row["steps"] = first + self.factor * (row["steps"] - first)
        return json.dumps({**row, "lied": True}) + "\n"


def go_on(home: Path, lies: Callable[[Path, set[str]], None] | None) -> Seen:
    """Some windows more; what the others were planned to draw and how their promises were kept."""
    settings = settings_of(home)
    store = Store(settings)
    manager = open_manager(settings, store)
    for path in (settings.spool / "progress").glob("*"):
        path.unlink()  # taken in already
    watts = 0.0
    for _ in range(AFTER):
        manager.advance(settings.cycle.window_s)
        state = manager.state()
        mine = {status.job.id for status in state.jobs if status.job.owner == LIAR}
        if lies is not None:
            lies(settings.spool, mine)
        report = run_cycle(settings, manager=manager, store=store)
        assert report.state == "emitted", report.detail
        assert report.problem is not None
        assert report.plan is not None
        planned = watts_by_job(report.problem, report.plan)
        watts += sum(w for job, w in planned.items() if job not in mine)
    with store.read() as connection:
        [(kept,)] = connection.execute(
            "SELECT sum(kept_s) / sum(promised_s - unknown_s) FROM job_windows "
            f"JOIN jobs USING (job_id) WHERE owner <> '{LIAR}'"
        ).fetchall()
        rows = connection.execute(
            "SELECT max(throughput) / min(throughput) FROM observations "
            f"JOIN jobs USING (job_id) WHERE owner = '{LIAR}' "
            "GROUP BY job_id, observations.gpu_type, gpus, partner_class"
        ).fetchall()
    return Seen(watts / AFTER, 100 * kept, max((row[0] for row in rows), default=1.0))


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("lies") / "begun"
    settings = settings_of(home)
    store = Store(settings)
    store.migrate()
    manager = open_manager(settings, store)
    for number in range(BEFORE):
        if number:
            manager.advance(settings.cycle.window_s)
        run_cycle(settings, manager=manager, store=store)
    return home


@pytest.fixture(scope="module")
def honest(begun: Path) -> Seen:
    shutil.copytree(begun, begun.parent / "honest")
    return go_on(begun.parent / "honest", None)


@pytest.mark.parametrize("factor", [10.0, 0.1, 0.0])
def test_one_owners_lies_leave_the_plans_and_promises_of_the_others(
    begun: Path, honest: Seen, factor: float
) -> None:
    home = begun.parent / f"lying-{factor:g}"
    shutil.copytree(begun, home)
    seen = go_on(home, Lies(factor))
    print(f"{factor:g} times: {seen}, honest {honest}")
    assert seen.watts == pytest.approx(honest.watts, rel=APART)
    assert seen.kept == pytest.approx(honest.kept, abs=1.0)
    assert seen.observed < 2, "what was reported and cannot be is not among the observations"
