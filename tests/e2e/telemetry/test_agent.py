"""The NVML agent through the real pynvml, against a stub of the library."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gogh_core.store import now_utc
from tests.conftest import PROJECT
from tests.telemetry.world import opened, rows_of, state_of, take_in

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    source = PROJECT / "tests/e2e/telemetry/stub_nvml.c"
    target = folder / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", target, source], check=True)
    return folder


def start(
    library: Path, home: Path, *more: str, period_s: float = 1.0, **stub: str
) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        **stub,
        "LD_LIBRARY_PATH": str(library),
        "GOGH_HOME": str(home),
        "GOGH_TELEMETRY__SAMPLE_PERIOD_S": str(period_s),
        "GOGH_TELEMETRY__SPOOL_LIMIT_MB": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "gogh_core.cli", "agent", "--server", "n1", *more],
        env=environment,
        cwd=PROJECT,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: object, what: str, timeout_s: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def lines(home: Path) -> int:
    return sum(path.read_text().count("\n") for path in (home / "spool/gpu").glob("n1-*"))


def test_the_agent_samples_spools_and_survives_being_killed(library: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = start(library, home, period_s=0.05)
    wait_for(lambda: (home / "spool/gpu").exists() and lines(home) > 20, "samples")
    first.kill()
    first.wait()
    assert first.stderr is not None
    said = first.stderr.read()
    assert "GPU 1 has no energy for us" in said
    assert "no processes for us" in said
    second = start(library, home, "--samples", "5", period_s=0.05)
    assert second.wait(timeout=120) == 0
    names = sorted(path.name for path in (home / "spool/gpu").iterdir())
    assert len(names) == 2
    assert not [name for name in names if name.endswith(".open")]
    settings, store = opened(home, state_of([("n1", "v100", 2)]))
    total = lines(home) - len(names)
    report = take_in(settings, store, now_utc())
    assert report.ok, report.faults
    assert report.sources[0].rows_clean == total
    found = rows_of(
        store,
        "SELECT DISTINCT gpu_index, gpu_type, energy_j IS NULL, utilisation, memory_used_mb, "
        "temperature_c, sm_clock_mhz, throttle_reasons, processes FROM gpu_samples ORDER BY ALL",
    )
    assert found == [
        (0, "v100", False, 0.42, 4096.0, 55.0, 1380.0, 4, None),
        (1, "v100", True, 0.42, 4096.0, 55.0, None, 4, None),
    ]


def test_the_agent_outlives_a_driver_that_is_reloaded(library: Path, tmp_path: Path) -> None:
    home, gone = tmp_path / "home", tmp_path / "gone"
    agent = start(library, home, period_s=0.05, STUB_GONE=str(gone))
    assert agent.stderr is not None
    wait_for(lambda: (home / "spool/gpu").exists() and lines(home) > 5, "samples")
    gone.touch()
    told = [agent.stderr.readline() for _ in range(3)]
    while "NVML gives no answer (Driver Not Loaded)" not in told[-1]:
        told.append(agent.stderr.readline())
        assert told[-1], told
    before = lines(home)
    gone.unlink()
    wait_for(lambda: lines(home) > before + 5, "samples of the new driver")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(timeout=60) == 0
    told += agent.stderr.readlines()
    assert any("NVML was opened anew: 2 GPUs" in line for line in told)
    failed = [line for line in told if "now (Driver Not Loaded)" in line]
    assert len(failed) == len(set(failed)), "what fails is told once, not each second"
    text = "".join(path.read_text() for path in (home / "spool/gpu").iterdir())
    assert not [line for line in text.splitlines() if line.endswith(",,,,,,,")]


def test_the_agent_takes_little_of_one_core(library: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "STUB_GPUS": "8"}
    done = subprocess.run(
        [sys.executable, "-m", "gogh_core.cli", "bench", "agent", "--json"],
        env=environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found = json.loads(done.stdout)
    print(f"agent: {found['median']:.3%} of one core for {found['gpus']} GPUs")
    assert found["gpus"] == 8


def test_the_agent_keeps_its_bound_on_disk(tmp_path: Path) -> None:
    from gogh_core.telemetry import Agent

    class Chatty:
        def rows(self, server: str, now: float) -> list[str]:
            return [f"{now:.3f},{server},0,v100," + "1" * 200_000]

        def close(self) -> None:
            return None

    told: list[str] = []
    agent = Agent(tmp_path, Chatty(), server="n1", limit_mb=1, rotate_s=0.0, tell=told.append)  # type: ignore[arg-type]
    for second in range(20):
        agent.once(1_767_603_600.0 + second)
    size = sum(path.stat().st_size for path in (tmp_path / "gpu").iterdir())
    assert size <= 1.3 * 1024 * 1024
    assert any("removed: the spool is full" in line for line in told)


DISK_FULL = """
import json, resource, sys
from pathlib import Path
from gogh_core.telemetry import Agent

class Devices:
    def rows(self, server, now):
        return [f"{now:.3f},{server},{gpu},v100,100.0,,0.5,4096,55,1380,0,1" for gpu in (0, 1)]

told = []
agent = Agent(Path(sys.argv[1]), Devices(), server="n1", limit_mb=1, tell=told.append)
began = 1_767_603_600.0
free = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
for second in range(60):
    full = 20 <= second < 40
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, free[1]) if full else free)
    agent.once(began + second)
agent.close()
print(json.dumps({"told": told, "dropped": agent.dropped}))
"""


def test_the_agent_goes_on_when_the_disk_is_full_and_no_sample_is_lost(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = subprocess.run(
        [sys.executable, "-c", DISK_FULL, str(home / "spool")],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said = json.loads(done.stdout)
    assert any("the spool cannot be written" in line for line in said["told"])
    assert said["dropped"] == 0
    assert not list((home / "spool/gpu").glob("*.open"))
    settings, store = opened(home, state_of([("n1", "v100", 2)]))
    report = take_in(settings, store, datetime.fromtimestamp(1_767_603_670, UTC))
    assert report.ok, report.faults
    assert report.sources[0].rows_quarantined == 0
    assert rows_of(store, "SELECT count(*), count(DISTINCT (ts, gpu_index)) FROM gpu_samples") == [
        (120, 120)
    ]
