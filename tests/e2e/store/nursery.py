"""A process that raises children and kills them: one child for each task, killed at one point.

`python -m tests.e2e.store.nursery` reads one JSON order for each line and answers with one. A child
counts its steps (every statement it sends to DuckDB, every file it syncs, moves or removes) and
kills itself with SIGKILL right before step `at`; or it is killed after `delay_s`, wherever it is
then. Forking from here saves importing everything for each kill.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gogh_core.settings import load
from gogh_core.store import Store, files

__all__ = ["Nursery"]


class Steps:
    """Counts, and ends the process at the step that was asked for."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.done = 0

    def take(self) -> None:
        self.done += 1
        if self.done == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


class Counted:
    """A connection whose every call is a step."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, steps: Steps) -> None:
        self._connection = connection
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._connection, name)

        def call(*args: Any, **more: Any) -> Any:
            self._steps.take()
            return found(*args, **more)

        return call


class CountedStore(Store):
    """A store whose connections count."""

    steps: Steps

    def open(self, path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        self.steps.take()
        return Counted(super().open(path, read_only=read_only), self.steps)  # type: ignore[return-value]


def batch(number: int, rows: int = 200) -> pa.Table:
    """Events that tell batch and row."""
    return pa.table(
        {
            "job_id": [f"{number}-{row}" for row in range(rows)],
            "ts": pa.array([datetime.fromisoformat("2026-01-05T12:00:00+00:00")] * rows),
            "event": ["submitted"] * rows,
        }
    )


def _write(store: Store, order: dict[str, Any]) -> None:
    with (store.path.parent / "acknowledged").open("a") as told:
        for number in range(order["batches"]):
            store.append("job_events", batch(number))
            told.write(f"{number}\n")
            told.flush()


TASKS: dict[str, Callable[[Store, dict[str, Any]], object]] = {
    "write": _write,
    "migrate": lambda store, _: store.migrate(),
    "publish": lambda store, _: store.publish(),
    "age": lambda store, order: store.age(datetime.fromisoformat(order["clock"])),
    "backup": lambda store, order: store.backup(Path(order["folder"])),
    "restore": lambda store, order: store.restore(Path(order["folder"])),
}


def _child(order: dict[str, Any], answer: int) -> None:
    steps = Steps(order.get("at", 0))
    for name in ("sync", "replace", "remove", "remove_at", "write_at"):
        setattr(files, name, _stepped(getattr(files, name), steps))
    settings = load(home=Path(order["home"]), store=order.get("store", {}))
    store = CountedStore(settings)
    store.steps = steps
    TASKS[order["task"]](store, order)
    os.write(answer, str(steps.done).encode())


def _stepped(real: Callable[..., Any], steps: Steps) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        steps.take()
        return real(*args, **more)

    return call


def _raise_one(order: dict[str, Any]) -> dict[str, Any]:
    ours, theirs = os.pipe()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _child(order, theirs)
            code = 0
        except BaseException:  # noqa: BLE001 - told, and the child ends
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(theirs)
    if "delay_s" in order:
        time.sleep(order["delay_s"])
        os.kill(pid, signal.SIGKILL)
    told = os.read(ours, 100)
    os.close(ours)
    _, status = os.waitpid(pid, 0)
    return {
        "steps": int(told or 0),
        "killed": os.WIFSIGNALED(status),
        "failed": os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0,
        "seconds": time.monotonic() - began,
    }


class Nursery:
    """The test's side of it."""

    def __enter__(self) -> Nursery:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.store.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def run(self, task: str, home: Path, **order: Any) -> dict[str, Any]:
        """One child; how many steps it took, or that it was killed."""
        order = {"clock": "2026-01-05T12:30:00+00:00", **order, "task": task, "home": str(home)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert not answer["failed"], f"{task} failed: its words are above"
        return answer


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_raise_one(json.loads(line))), flush=True)
