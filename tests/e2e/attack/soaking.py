"""A process that runs one cycle in each of its children, and kills some of them at any moment.

`python -m tests.e2e.attack.soaking` reads one JSON order for each line and answers with one: how
the child ended, what it took and how much memory it had at most. Forking from here saves importing
everything for each window, and what was imported is the same for all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from gogh_core.cluster import open_manager
from gogh_core.planning import run_cycle
from gogh_core.settings import Settings, load
from gogh_core.store import Store
from gogh_core.telemetry import retain

__all__ = ["START", "Runner", "settings_of"]

START = datetime.fromisoformat("2026-01-05T09:00:00+00:00")
RETENTION_H = 4.0
KEEP_S = 3600.0
"""How long files stay in the spool, by the clock of the embedded cluster."""


def settings_of(home: Path) -> Settings:
    """A small site with wide gaps, little training and short retention: the bounds are reached."""
    return load(
        home=home,
        # Its own garbage is left out: every row that it writes is a good one.
        simulation={"servers": 6, "jobs_per_hour": 18, "garbage_rate": 0.0, "start": START},
        allocation={"gap": 0.5},
        cycle={"budget_s": 3600, "step_budget_s": 1800},
        estimation={"retrain_budget_s": 0.5},
        store={"hot_hours": 1.0, "retention_days": RETENTION_H / 24},
        telemetry={
            "spool_keep_s": KEEP_S,
            "max_unpacked_mb": 32,
            "max_rows": 1_000_000,
            "read_limit_s": 2.0,
            "read_memory_mb": 768,
        },
    )


def _cycle(order: dict[str, Any]) -> str:
    settings = settings_of(Path(order["home"]))
    # The clock of the file system runs as fast as the cluster's.
    defaults = retain.clean_spool.__kwdefaults__
    assert defaults is not None
    defaults["clock"] = lambda: float(order["file_time"])
    store = Store(settings)
    return run_cycle(settings, manager=open_manager(settings, store), store=store).outcome


def _maintain(order: dict[str, Any]) -> str:
    """Ageing, a backup beside the last one, a fresh snapshot."""
    settings = settings_of(Path(order["home"]))
    store = Store(settings)
    aged = store.age(open_manager(settings, store).clock())
    folder = Path(order["backups"])
    fresh = folder / order["name"]
    shutil.rmtree(fresh, ignore_errors=True)
    store.backup(fresh)
    for old in folder.iterdir():
        if old != fresh:
            shutil.rmtree(old)
    store.publish()
    return json.dumps({"moved": aged.rows_moved, "doubt": aged.doubt})


_TASKS = {"cycle": _cycle, "maintain": _maintain}


def _raise_one(order: dict[str, Any]) -> dict[str, Any]:
    """Fork a child for the task; with `kill_after_s`, kill it then, wherever it is."""
    ours, theirs = os.pipe()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.write(theirs, _TASKS[order["task"]](order).encode())
            code = 0
        except BaseException:  # noqa: BLE001 - told, and the child ends
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(theirs)
    ended = 0
    limit_s = order.get("kill_after_s") or 300.0
    while not ended:
        ended, status, used = os.wait4(pid, os.WNOHANG)
        if not ended and time.monotonic() - began >= limit_s:
            os.kill(pid, signal.SIGKILL)
            ended, status, used = os.wait4(pid, 0)
        if not ended:
            time.sleep(0.005)
    told = os.read(ours, 10_000).decode()
    os.close(ours)
    return {
        "told": told,
        "killed": os.WIFSIGNALED(status),
        "failed": os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0,
        "seconds": time.monotonic() - began,
        "cpu_s": used.ru_utime + used.ru_stime,
        "rss_mb": used.ru_maxrss / 1024,
    }


class Runner:
    """The test's side of it."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("ab")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GOGH_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.attack.soaking"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
        self._log.close()

    def run(self, task: str, **order: Any) -> dict[str, Any]:
        """One child; how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"task": task, **order}) + "\n")
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


if __name__ == "__main__":
    import great_expectations  # noqa: F401
    import pyomo.environ  # noqa: F401
    import torch  # noqa: F401

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a child prints is not taken for an answer
    for line in sys.stdin:
        answers.write(json.dumps(_raise_one(json.loads(line))) + "\n")
