"""A cycle with 500 jobs and 1,024 GPUs on the embedded cluster: where its seconds go."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, resource, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from gogh_core.settings import load
from gogh_core.store import Store
from gogh_core.cluster import open_manager
from gogh_core.planning import Request, run_cycle

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

settings = load(home=Path(sys.argv[1]), simulation={"servers": 171, "jobs_per_hour": 3600.0},
                allocation={"time_limit_s": 60.0})
store = Store(settings)
store.migrate()
manager = open_manager(settings, store)
for _ in range(2):
    run_cycle(settings, manager=manager, store=store)
    manager.advance(float(settings.cycle.window_s))
began, steps, at = cpu(), {}, {}

def report(step, seconds):
    if seconds == 0:
        at[step] = cpu()
    else:
        steps[step] = cpu() - at[step]

done = run_cycle(settings, manager=manager, store=store, report=report)
state = manager.state()
print(json.dumps({
    "jobs": len(state.jobs), "gpus": sum(s.server.gpus for s in state.servers),
    "outcome": done.outcome, "status": done.plan.status, "gap": done.plan.gap,
    "cpu": steps, "wall": done.seconds, "total_cpu": cpu() - began,
}))
"""


@pytest.mark.soak
def test_what_is_not_planning_or_learning_stays_under_20_s_of_cpu(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True, text=True, check=True, timeout=3000,
    )  # fmt: skip
    found = json.loads(done.stdout.strip().splitlines()[-1])
    print(json.dumps(found, indent=1))
    assert found["jobs"] >= 500
    assert found["gpus"] >= 1024
    work = sum(found["cpu"].get(step, 0.0) for step in ("retrain", "estimate", "allocate"))
    assert found["total_cpu"] - work < 20, found
