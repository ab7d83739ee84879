"""Kills the embedded cluster and lets it go on; run as a program of its own, without threads.

`python -m tests.e2e.simulation.killing FOLDER MODE COUNT SEED` runs the same scenario once
undisturbed, then with kills. MODE `each` kills at each point once, `random` at random points again
and again, `clock` whenever the clock says. One JSON line for each run: the points, and the digest
of all that is on disk afterwards. MODE `together` lets two processes run one cluster.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from gogh_core.domain import Slot
from gogh_core.settings import SimulationSettings
from gogh_core.simulation import SimulatedCluster, disk

SETTINGS = SimulationSettings(
    servers=3, jobs_per_hour=240, garbage_rate=0.05, gap_rate=0.05, late_rate=0.1, seed=5
)
STEP_S = 120


def scenario(home: Path) -> None:
    """Everything a cluster goes through, said so that saying it again changes nothing."""
    cluster = SimulatedCluster(home / "cluster", SETTINGS, spool=home / "spool")
    act = {
        0: lambda: _begin(cluster),
        1: lambda: _change(cluster),
        2: lambda: _break(cluster),
    }
    for step in range(4):
        begin = SETTINGS.start + timedelta(seconds=step * STEP_S)
        if cluster.now == begin and step in act:
            act[step]()
        cluster.advance_to(begin + timedelta(seconds=STEP_S))


def _begin(cluster: SimulatedCluster) -> None:
    for number in (1, 2):
        cluster.release(f"j{number:05d}", key=f"release {number}")
    cluster.place(
        "j00003", (Slot("v100-01", (7,)),), partner=None, power_limit_w=None, key="place 3"
    )
    cluster.switch("t4-01", on=False, key="off")


def _change(cluster: SimulatedCluster) -> None:
    cluster.move("j00003", (Slot("v100-01", (5,)),), partner=None, power_limit_w=200.0, key="move")
    cluster.set_power_limit("v100-01", 4, 150.0, key="limit")
    cluster.switch("t4-01", on=True, key="on")


def _break(cluster: SimulatedCluster) -> None:
    cluster.fault("gpu_dies", "v100-01/5", key="dies")
    cluster.fault("telemetry_stops", "k80-01", key="stops")
    cluster.hold("j00003", key="hold")


def digest(home: Path) -> dict[str, str]:
    """Every byte that counts, by file; the lock and folders do not."""
    files = sorted(path for path in home.rglob("*") if path.is_file() and path.name != "lock")
    return {
        str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if not path.name.endswith(".new")
    }


def run(
    home: Path, *, kill_at: int | None = None, after_s: float | None = None, log: Path | None = None
) -> bool:
    """The scenario in a process of its own; whether it came to its end."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            disk.seam = _deadly(kill_at, log)
            scenario(home)
            status = 0
        finally:
            os._exit(status)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"the scenario failed in {home}")
    return True


def _deadly(kill_at: int | None, log: Path | None) -> Callable[[str], None]:
    """A seam that counts the points, writes their names to `log` and ends this process at one."""
    passed = itertools.count(1)

    def seam(name: str) -> None:
        number = next(passed)
        if log is not None:
            with log.open("a", encoding="utf-8") as handle:
                handle.write(f"{number} {name}\n")
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    return seam


def report(name: str, points: list[str], home: Path) -> None:
    print(json.dumps({"run": name, "points": points, "digest": digest(home)}), flush=True)
    shutil.rmtree(home)


def together(home: Path, times: int) -> None:
    """Two processes run the same cluster at once, ten seconds at a time."""
    settings = SETTINGS.model_copy(update={"garbage_rate": 0, "gap_rate": 0, "late_rate": 0})
    SimulatedCluster(home, settings)
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                cluster = SimulatedCluster(home, settings)
                for _ in range(times):
                    cluster.advance(10)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    for child in children:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    gone = (SimulatedCluster(home, settings).now - settings.start).total_seconds()
    rows = Counter(
        ",".join(row.split(",")[:3])
        for path in (home / "spool" / "gpu").iterdir()
        for row in gzip.decompress(path.read_bytes()).decode().splitlines()[1:]
    )
    print(json.dumps({"gone_s": gone, "rows": len(rows), "most": max(rows.values())}))


def main(folder: Path, mode: str, count: int, seed: int) -> None:
    if mode == "together":
        together(folder / "home", count)
        return
    log = folder / "points.log"
    assert run(folder / "calm", log=log)
    points = [line.partition(" ")[2] for line in log.read_text(encoding="utf-8").splitlines()]
    report("calm", points, folder / "calm")
    rng = random.Random(seed)
    if mode == "each":
        for number, point in enumerate(points, start=1):
            home = folder / f"each-{number}"
            assert not run(home, kill_at=number), f"{point} was not reached"
            assert run(home)
            report(f"each {number}", [point], home)
    for number in range(count if mode != "each" else 0):
        home, killed = folder / f"{mode}-{number}", []
        while True:
            at = rng.randint(1, len(points))
            after_s = rng.uniform(0, 0.02 * (len(killed) + 1))
            done = run(home, kill_at=at) if mode == "random" else run(home, after_s=after_s)
            if done:
                break
            killed.append(f"point {at}" if mode == "random" else f"{after_s * 1000:.1f} ms")
        report(f"{mode} {number}", killed, home)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
