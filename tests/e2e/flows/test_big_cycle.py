"""A cycle with 500 jobs and 1,024 GPUs under a real Prefect: where its seconds go."""

from __future__ import annotations

import re

import psutil
import pytest

from gogh_core.cli.prefect_server import Daemon
from gogh_core.cluster import open_manager
from gogh_core.domain import JobState
from gogh_core.store import Store
from tests.e2e.stack import Stack, running

LARGE = {"servers": 171, "jobs_per_hour": 2400.0}
"""Six GPUs a server on average; 200 jobs come in a window, and some 250 are there at first."""
LIVE = (JobState.RUNNING, JobState.MOVING, JobState.WAITING)


def daemons_cpu_s(stack: Stack) -> float:
    """CPU of Prefect's server and worker so far, without the runs they started."""
    home = stack.settings.home.absolute()
    found = [Daemon(name, home).process() for name in ("server", "worker-1")]
    processes = [p for top in found if top is not None for p in (top, *server_parts(top))]
    return sum(sum(p.cpu_times()[:2]) for p in processes)


def server_parts(top: psutil.Process) -> list[psutil.Process]:
    return [p for p in top.children(recursive=True) if "flow-run" not in " ".join(p.cmdline())]


@pytest.mark.soak
def test_what_is_not_planning_or_learning_stays_under_20_s_of_cpu(tmp_path):
    with (
        running(tmp_path, simulation=LARGE, cycle={"window_s": 300}, estimation={}) as stack,
        stack.quiet(),
    ):
        for minute in range(0, 15, 5):
            before = daemons_cpu_s(stack)
            run = stack.run("reallocation", {"window": f"2031-01-01T00:{minute:02}:00+00:00"})
            assert run["state_type"] == "COMPLETED", run["state"]["message"]
        daemons_s = daemons_cpu_s(stack) - before
        manager = open_manager(stack.settings, Store(stack.settings))
        state = manager.state()
        artifact = stack.artifacts(run["id"])["gogh-seconds"]
        page = stack.api.call("GET", f"/artifacts/{artifact['id']}")["data"]
    jobs = sum(status.state in LIVE for status in state.jobs)
    gpus = sum(status.server.gpus for status in state.servers)
    found = re.search(r"Neither planning nor learning: ([\d.]+) s of CPU", page)
    assert found, page
    table = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    print(f"{run['name']}\n{jobs} jobs on {gpus} GPUs\n{table}\n{found[0]}", flush=True)
    print(f"server and worker meanwhile: {daemons_s:.1f} s of CPU", flush=True)
    assert jobs >= 500
    assert gpus >= 1024
    assert float(found[1]) < 20, page
