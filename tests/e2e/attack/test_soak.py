"""Many windows of the embedded cluster in fast motion, under attack all the time.

Each window is planned by the real cycle in a process of its own, which in a third of the windows
is killed at a random moment; the next run resumes. Hostile files lie in the spool of every window,
one owner's jobs lie about their progress, and between the windows the store is aged, backed up and
published. At the end every row that the cluster wrote is stored exactly once, every window has one
plan or a reason, and nothing has grown beyond what retention explains.

The rule for "grown": a line is fitted to the figures of the second half, when every retention is
reached; over that half it may rise by at most a tenth of their mean (a fifth for seconds of
processor time, which other programs disturb).
"""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gogh_core.cluster import open_manager
from gogh_core.domain import JobState
from gogh_core.store import Store
from tests.conftest import PROJECT
from tests.e2e.attack import hostile, soaking
from tests.e2e.planning.test_lies import Lies

WINDOWS = 200
WINDOW_S = 300
LIAR = "students"
MAINTENANCE = 6  # windows
ALLOWED = {"rss_mb": 0.1, "files": 0.1, "database_mb": 0.1, "cpu_s": 0.2}


@dataclass
class Window:
    """The figures of one window; those of a cycle that was killed are None."""

    number: int
    seconds: float | None
    cpu_s: float | None
    rss_mb: float | None
    files: int
    sample_files: int
    database_mb: float
    snapshot_mb: float
    kills: int
    hostile: int


@dataclass
class Soak:
    """An embedded cluster, what it wrote, and what was found of each window."""

    home: Path
    windows: int
    seed: int = 15
    told: list[Window] = field(default_factory=list)
    samples: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    reports: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    cycles: dict[datetime, list[dict[str, Any]]] = field(default_factory=dict)
    older: list[bytes] = field(default_factory=list)
    fates: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.settings = soaking.settings_of(self.home)
        self.store = Store(self.settings)
        self.store.migrate()
        self.manager: Any = open_manager(self.settings, self.store)
        self.backups = self.home.parent / "backups"
        self.backups.mkdir()
        self.began = time.time()
        self.lies = {factor: Lies(factor) for factor in (10.0, 0.1, 0.0)}
        self.jobs_of: dict[str, str] = {}
        self.typical_s = 4.0

    # -- one window --------------------------------------------------------------------------

    def file_time(self, number: int) -> float:
        """The clock of the file system, as fast as the cluster's; never ahead of ours."""
        return self.began - WINDOW_S * (self.windows - number)

    def run(self) -> None:
        with soaking.Runner(self.home.parent / "child.log") as runner:
            for number in range(self.windows):
                if number:
                    self.manager.advance(WINDOW_S)
                kinds = self.fill_spool(number)
                last = number >= self.windows - 2
                kills, done = self.plan(runner, number, killing=not last)
                if number % MAINTENANCE == MAINTENANCE - 1:
                    self.maintain(runner, number)
                self.look(number, kills, kinds, done)
            self.maintain(runner, self.windows)

    def fill_spool(self, number: int) -> int:
        """What the cluster wrote in this window, one owner's lies, and hostile files beside it."""
        spool = self.settings.spool
        state = self.manager.state()
        self.jobs_of |= {s.job.id: s.job.owner for s in state.jobs}
        good: list[str] = []
        stamp = f"{round(state.at.timestamp())}"
        for path in [p for p in spool.rglob(f"*-{stamp}.*") if p.is_file()]:
            if path.parent.name == "gpu":
                good = self.know_samples(path)
            elif path.parent.name == "progress":
                self.know_reports(path)
        before = {p.name for p in spool.rglob("*")}
        scene = hostile.Scene(
            self.settings,
            self.dice,
            number,
            state.at,
            good,
            self.older[:-20],
            [s.job.id for s in state.jobs if s.state is JobState.RUNNING][:5],
        )
        kinds = self.dice.sample(hostile.KINDS, self.dice.randrange(1, 4)) if number else []
        for kind in kinds:
            kind(scene)
            self.fates[kind.__name__] += 1
        fresh = [p for p in spool.rglob("*") if p.name not in before or stamp in p.name]
        for path in fresh:
            os.utime(path, (self.file_time(number),) * 2, follow_symlinks=False)
        return len(kinds)

    def know_samples(self, path: Path) -> list[str]:
        data = path.read_bytes()
        rows = gzip.decompress(data).decode().splitlines()[1:]
        for row in rows:
            ts, server, gpu = row.split(",")[:3]
            self.samples[ts, server, int(gpu)] += 1
        self.older = [*self.older, data][-60:]
        return rows

    def know_reports(self, path: Path) -> None:
        lines = path.read_text().splitlines(keepends=True)
        self.older = [*self.older, path.read_bytes()][-60:]
        for line in lines:
            row = json.loads(line)
            if self.jobs_of.get(row["job_id"]) != LIAR:
                self.reports[row["ts"], row["job_id"], row["rank"]] += 1
        lie = self.lies[self.dice.choice(sorted(self.lies))]
        liars = {job for job, owner in self.jobs_of.items() if owner == LIAR}
        path.write_text("".join(lie.line(line, liars) for line in lines))

    def plan(
        self, runner: soaking.Runner, number: int, *, killing: bool
    ) -> tuple[int, dict[str, Any] | None]:
        """Plan the window, killed in a third of them; most of the killed ones run again at once."""
        order = {"home": str(self.home), "file_time": self.file_time(number)}
        kills = 0
        while killing and (number % 3 == 1 if not kills else self.dice.random() < 1 / 4):
            after_s = self.dice.uniform(0.02, self.typical_s)
            answer = runner.run("cycle", kill_after_s=after_s, **order)
            assert not answer["failed"], self.words()
            kills += answer["killed"]
            if not answer["killed"]:
                break
            if self.dice.random() < 0.2:
                return kills, None  # nobody runs it again: the next window finds it
        answer = runner.run("cycle", **order)
        assert not answer["failed"], self.words()
        assert not answer["killed"], "took 300 s"
        whole = not kills and answer["told"] == "emitted"
        if whole:
            self.typical_s += 0.1 * (answer["seconds"] - self.typical_s)
        return kills, answer if whole else None

    def maintain(self, runner: soaking.Runner, number: int) -> None:
        order = {"home": str(self.home), "backups": str(self.backups), "name": f"{number:05d}"}
        if self.dice.random() < 1 / 3:
            runner.run("maintain", kill_after_s=self.dice.uniform(0.02, 1.0), **order)
        answer = runner.run("maintain", **order)
        assert not answer["failed"], self.words()

    def words(self) -> str:
        return (self.home.parent / "child.log").read_text()[-3000:]

    # -- looking -----------------------------------------------------------------------------

    def look(self, number: int, kills: int, kinds: int, done: dict[str, Any] | None) -> None:
        paths = [p for p in self.home.rglob("*") if not p.is_dir()]
        parquet = sum(p.is_relative_to(self.store.samples) for p in paths)
        done = done or {}
        window = Window(
            number,
            done.get("seconds"),
            done.get("cpu_s"),
            done.get("rss_mb"),
            len(paths) - parquet,
            parquet,
            self.store.path.stat().st_size / 1e6,
            self.store.snapshot_path.stat().st_size / 1e6
            if self.store.snapshot_path.exists()
            else 0.0,
            kills,
            kinds,
        )
        self.told.append(window)
        print(json.dumps(asdict(window)), flush=True)
        if number % 25 == 24:
            print("rows:", self.rows_of_tables(), flush=True)
        since = self.manager.now - timedelta(seconds=4 * WINDOW_S)
        with self.store.read() as connection:
            rows = connection.execute(
                "SELECT c.window_start, c.cycle_id, c.state, c.detail, count(p.plan_id) AS plans "
                "FROM cycles AS c LEFT JOIN plans AS p USING (cycle_id) "
                "WHERE c.window_start > ? GROUP BY ALL",
                [since],
            ).to_arrow_table()
        found: dict[datetime, list[dict[str, Any]]] = {}
        for row in rows.to_pylist():
            found.setdefault(row["window_start"], []).append(row)
        self.cycles |= found

    def rows_of_tables(self) -> dict[str, int]:
        with self.store.read() as connection:
            listed = connection.execute(
                "SELECT table_name, estimated_size FROM duckdb_tables() WHERE schema_name = 'main'"
            ).fetchall()
        return {name: count for name, count in sorted(listed) if count}

    def stored(self, table: str, columns: str) -> Counter[Any]:
        """Every row of a table, hot, in Parquet, or hidden there as too old."""
        with self.store.read() as connection:
            files = connection.execute(
                "SELECT file FROM sample_files WHERE table_name = ? "
                "AND (retired_at IS NULL OR expired_s IS NOT NULL)",
                [table],
            ).fetchall()
            paths = [str(self.store.samples / name) for (name,) in files]
            rows = connection.execute(f"SELECT {columns} FROM {table}").fetchall()
            if paths:
                rows += connection.execute(
                    f"SELECT {columns} FROM read_parquet(?, hive_partitioning = false)", [paths]
                ).fetchall()
        return Counter(rows)


STAMP = "strftime(ts AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%g') || 'Z'"


def check_rows(soak: Soak) -> str:
    """Each row of the cluster is stored once, and no row that it did not write."""
    assert max(soak.samples.values()) == 1, "the cluster writes each sample once"
    stored = soak.stored("gpu_samples", f"{STAMP}, server_id, gpu_index")
    lost, doubled = soak.samples - stored, stored - soak.samples
    assert not lost, f"{len(lost)} samples are lost, {list(lost)[:5]}"
    assert not doubled, f"{len(doubled)} are doubled or not the cluster's, {list(doubled)[:5]}"
    reports = soak.stored("job_progress", f'{STAMP}, job_id, "rank"')
    missing = soak.reports - reports
    twice = [key for key, count in reports.items() if count > max(1, soak.reports[key])]
    assert not missing, f"{len(missing)} reports are lost, {list(missing)[:5]}"
    assert not twice, f"{len(twice)} reports are doubled, {twice[:5]}"
    return f"{soak.samples.total()} samples and {soak.reports.total()} reports stored once"


def check_windows(soak: Soak) -> str:
    """Every window has one plan that was handed over, or says why it has none."""
    start = soaking.START
    states: Counter[str] = Counter()
    for number in range(soak.windows):
        at = start + timedelta(seconds=WINDOW_S * number)
        cycles = soak.cycles.get(at, [])
        assert len(cycles) == 1, f"window {number} has {cycles}"
        cycle = cycles[0]
        assert cycle["plans"] <= 1, cycle
        if cycle["state"] == "emitted":
            assert cycle["plans"] == 1, cycle
        else:
            assert cycle["state"] in ("superseded", "failed", "missed"), cycle
            assert cycle["detail"], cycle
        states[cycle["state"]] += 1
    return ", ".join(f"{count} {state}" for state, count in states.most_common())


def growth(figures: Sequence[tuple[int, float]], windows: int) -> tuple[float, float]:
    """What a line through the second half rises by over it, as a share of the mean; the mean."""
    half = [(number, value) for number, value in figures if number >= windows / 2]
    x, y = np.array([h[0] for h in half], float), np.array([h[1] for h in half], float)
    slope = float(np.polyfit(x, y, 1)[0])
    return slope * windows / 2 / float(y.mean()), float(y.mean())


def series(soak: Soak, name: str) -> list[tuple[int, float]]:
    found = [(w.number, getattr(w, name)) for w in soak.told]
    return [(number, value) for number, value in found if value is not None]


def check_growth(soak: Soak) -> str:
    lines, faults = [], []
    for name, allowed in ALLOWED.items():
        figures = series(soak, name)
        first = [value for number, value in figures if number < soak.windows / 2]
        rise, mean = growth(figures, soak.windows)
        most = max(value for _, value in figures)
        lines.append(
            f"{name:12} first half {np.mean(first):8.2f}  second half {mean:8.2f}  "
            f"most {most:8.2f}  rises by {100 * rise:+5.1f} % (allowed {100 * allowed:.0f} %)"
        )
        if rise > allowed:
            faults.append(lines[-1])
    print("\n".join(lines))
    assert not faults, "\n".join(faults)
    return "\n".join(lines)


def plot(soak: Soak, path: Path) -> None:
    """The figures of all windows, one panel each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = {
        "rss_mb": "peak memory of a cycle, MB",
        "files": "files below home, without samples",
        "sample_files": "files of samples",
        "database_mb": "database, MB",
        "cpu_s": "processor seconds of a cycle",
        "seconds": "seconds of a cycle (shared machine)",
    }
    figure, axes = pyplot.subplots(3, 2, figsize=(11, 8), sharex=True, layout="constrained")
    killed = [w.number for w in soak.told if w.kills]
    for axis, (name, title) in zip(axes.flat, panels.items(), strict=True):
        figures = series(soak, name)
        axis.plot(*zip(*figures, strict=True), lw=1, color="#1f5fa8")
        for number in killed:
            axis.axvline(number, color="#c03a2b", lw=0.4, alpha=0.35)
        axis.set_title(title, fontsize=10)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("window (red: a cycle was killed)")
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def soaked(folder: Path, windows: int) -> Soak:
    soak = Soak(folder / "home", windows)
    soak.run()
    print(f"hostile files: {dict(soak.fates.most_common())}")
    print(f"kills: {sum(w.kills for w in soak.told)} in {sum(w.kills > 0 for w in soak.told)}")
    print("rows:", soak.rows_of_tables())
    return soak


@pytest.mark.e2e
def test_a_few_windows_under_attack_lose_no_row_and_no_window(tmp_path: Path) -> None:
    soak = soaked(tmp_path, 10)
    print(check_rows(soak))
    print(check_windows(soak))


@pytest.mark.soak
def test_two_hundred_windows_under_attack_lose_nothing_and_grow_no_more(tmp_path: Path) -> None:
    windows = int(os.environ.get("SOAK_WINDOWS", WINDOWS))
    soak = soaked(tmp_path, windows)
    (tmp_path / "figures.json").write_text(json.dumps([asdict(w) for w in soak.told]))
    plot(soak, PROJECT / "docs" / "screenshots" / "soak.png")
    print(check_windows(soak))
    print(check_rows(soak))
    check_growth(soak)
