"""The gate: one file lock that every process holds while it has the database open.

DuckDB 2.0 reads the header of a file before it locks the file. A commit by another process in
between is silently undone by the next one. So nobody opens the database without holding this lock
(`<database>.open`), from before DuckDB opens the file until after it has closed it. The kernel
drops the lock when its holder dies, and tells who holds it.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gogh_core.errors import StoreError, StoreLocked

__all__ = ["LONGEST_WAIT_S", "hold"]

# Waits between two tries grow to this, with jitter, so that waiting processes do not march in step.
_USUAL_WAIT_S = 0.005
LONGEST_WAIT_S = _USUAL_WAIT_S * 1.5
"""Who lets go of the gate for longer than this lets somebody else have it."""

_held = threading.local()


@contextmanager
def hold(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock file `path`; `StoreLocked` names the holder after `timeout_s`."""
    mine: set[Path] = _held.__dict__.setdefault("paths", set())
    if path in mine:
        raise StoreError(
            "is already open in this thread", where=str(path), todo="close it before opening again"
        )
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f"cannot be locked: {error.strerror}", where=str(path), todo="see who may write there"
        ) from error
    try:
        _lock(handle, path, timeout_s)
        mine.add(path)
        try:
            yield
        finally:
            mine.discard(path)
    finally:
        os.close(handle)


def _lock(handle: int, path: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    wait_s = 0.001
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise StoreLocked(
                    f"held by {_holder(handle)} for more than {timeout_s:g} s",
                    where=str(path),
                    todo="wait for it to end, or raise store.lock_timeout_s",
                ) from None
        time.sleep(wait_s * random.uniform(0.5, 1.5))
        wait_s = min(_USUAL_WAIT_S, wait_s * 2)


def _holder(handle: int) -> str:
    """Who holds the lock, as the kernel tells: writing it down would wait for a busy disk."""
    file = os.fstat(handle)
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    try:
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            _, kind, _, _, pid, where, *_ = line.split()
            if (kind, where) == ("FLOCK", place):
                return f"process {pid} ({_program(pid)})"
    except (OSError, ValueError):
        pass
    return "another process"


def _program(pid: str) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    names = [Path(word).name for word in words if word and not word.startswith("-")]
    return names[1] if len(names) > 1 and names[0].startswith("python") else names[0]
