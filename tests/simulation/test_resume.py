"""A run that was killed and resumed ends exactly as one that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gogh_core.errors import InvalidInput
from gogh_core.settings import SimulationSettings
from gogh_core.simulation.building import new_world
from gogh_core.simulation.engine import Run, run
from gogh_core.simulation.rates import Tick
from gogh_core.simulation.released import place_released
from gogh_core.simulation.runfile import RunFile
from gogh_core.simulation.world import World
from tests.simulation.random_worlds import Chaos
from tests.simulation.resuming import HORIZON_S, SETTINGS, Counting, outcome

PROJECT = Path(__file__).resolve().parents[2]


def _place_all(world: World) -> None:
    for record in world.jobs.values():
        record.released = True
    place_released(world)


def _events(path: Path) -> int:
    return json.loads(path.read_text())["events"] if path.exists() else 0


def _start(path: Path, pause_s: float) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.simulation.resuming", str(path), str(pause_s)]
    return subprocess.Popen(
        words,
        cwd=PROJECT,
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_killed_twice_and_resumed_it_ends_with_the_same_figures(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    for wanted in (20, 60):
        child = _start(path, 0.02)
        try:
            limit = time.monotonic() + 60
            while _events(path) < wanted and child.poll() is None and time.monotonic() < limit:
                time.sleep(0.01)
        finally:
            child.send_signal(signal.SIGKILL)
            out, err = child.communicate(timeout=60)
        assert child.returncode == -signal.SIGKILL, err
        assert not out
        assert _events(path) >= wanted
    child = _start(path, 0.0)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    assert json.loads(out) == json.loads(json.dumps(outcome(None)))


def test_saving_changes_nothing_and_every_saved_moment_can_be_resumed(tmp_path: Path) -> None:
    calm = outcome(None)
    path = tmp_path / "run.json"
    half = new_world(SETTINGS)
    policy = Counting(0.0)
    run(half, policy, HORIZON_S / 2, observer=policy.observe, saved=path, save_every_s=0.0)
    assert 0 < len(half.ended) < len(calm["ended"])
    with path.with_name("run.json.ended").open("a") as handle:
        handle.write('{"half a line')
    assert json.dumps(outcome(path)) == json.dumps(calm)


def test_a_file_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    policy = Chaos(1, 300.0, True)
    run(new_world(SETTINGS), policy, 600.0, saved=path, save_every_s=0.0)
    other = new_world(SimulationSettings(servers=4, jobs_per_hour=30, seed=8))
    with pytest.raises(InvalidInput, match="another run"):
        run(other, policy, 600.0, saved=path)
    path.write_text("{}")
    with pytest.raises(InvalidInput, match="no saved run"):
        Run(new_world(SETTINGS), policy).keep_in(RunFile(path))


def test_a_world_that_an_earlier_version_wrote_goes_on_the_same() -> None:
    new = ("number", "at_s", "gpu_s", "stops", "lost", "decided", "present_s", "crowd")
    worlds = []
    for strip in (False, True):
        world = new_world(SETTINGS)
        for _ in range(60):
            world.settle()
            _place_all(world)
            world.tick(world.now_s + 10, _Nobody())
        raw = json.loads(json.dumps(world.to_dict()))
        if strip:
            for record in (*raw["jobs"], *raw["servers"]):
                for name in new:
                    record.pop(name, None)
            for name in ("lost_work_s", "stops", "evictions"):
                del raw["totals"][name]
        again = new_world(SETTINGS)
        again.restore(raw)
        assert not again.refused
        for _ in range(60):
            again.settle()
            _place_all(again)
            again.tick(again.now_s + 10, _Nobody())
        worlds.append(again)
    kept, stripped = worlds
    assert kept.totals == stripped.totals
    assert [job.steps for job in kept.jobs.values()] == [
        job.steps for job in stripped.jobs.values()
    ]


class _Nobody:
    def tick(self, world: World, tick: Tick) -> None:
        world.events.clear()
