"""What a training or serving script calls at each step; one file, nothing but the standard library.

    from gogh_core.progress import Progress

    progress = Progress()            # under Slurm; elsewhere Progress(job="j1", spool="/spool")
    for batch in data:
        train(batch)
        progress.step()
    progress.close()                 # or `with Progress() as progress:`

A call only adds to a counter. A thread writes one JSON line a period to the spool
(`progress/<job>-r<rank>-<time>.jsonl`): ts, job_id, steps, attempt, rank, event. Whatever goes
wrong there (disk full, no permission, folder gone) is kept in `Progress.trouble` and tried again;
the job never waits for it and never fails because of it. Lines that could not be written yet are
replaced by newer ones: steps are a running total, so nothing is lost by that.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

__all__ = ["Progress"]

_SAFE = re.compile(r"[^A-Za-z0-9._-]")
_KEEP = 256  # events that wait for the disk to come back


class Progress:
    """Counts the steps of one process of one job and leaves reports in the spool."""

    def __init__(
        self,
        job: str | None = None,
        spool: str | os.PathLike[str] | None = None,
        *,
        steps: float = 0.0,
        rank: int | None = None,
        attempt: int | None = None,
        period_s: float = 1.0,
        max_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        """`steps` is where a restarted job goes on; without a job or spool nothing is written."""
        self.job = job or os.environ.get("SLURM_JOB_ID") or ""
        folder = spool or os.environ.get("GOGH_TELEMETRY__SPOOL") or ""
        self.steps = float(steps)
        self.rank = _int(rank, "RANK", "SLURM_PROCID")
        self.attempt = _int(attempt, "SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT")
        self.trouble: str | None = None if self.job and folder else "no job or no spool is named"
        self.path: Path | None = None
        self._folder = Path(folder) / "progress" if self.job and folder else None
        self._period_s = period_s
        self._max_bytes = max_bytes
        self._waiting: list[str] = []
        self._lock = threading.Lock()
        self._begin("start")
        atexit.register(_close_quietly, weakref.ref(self))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_Again(weakref.ref(self)))

    def step(self, steps: float = 1.0) -> None:
        """So many steps (or requests) more are done."""
        self.steps += steps

    def at(self, steps: float) -> None:
        """So many steps are done in all."""
        self.steps = float(steps)

    @contextmanager
    def checkpoint(self) -> Iterator[None]:
        """The job saves its state; the pause is not counted against its throughput."""
        self._event("checkpoint")
        try:
            yield
        finally:
            self._event("checkpoint")

    def close(self) -> None:
        """Write the last report; safe to call twice."""
        if self._stop.is_set():
            return
        self._event("end")
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self, event: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gogh-progress", daemon=True)
        self._event(event)
        if self._folder is not None:
            try:
                self._thread.start()
            except RuntimeError as error:  # no more threads, or the interpreter ends
                self.trouble = str(error)

    def _event(self, event: str | None) -> None:
        line = json.dumps(
            {
                "ts": round(time.time(), 3),
                "job_id": self.job,
                "steps": self.steps,
                "attempt": self.attempt,
                "rank": self.rank,
                "event": event,
            }
        )
        with self._lock:
            if len(self._waiting) < _KEEP:
                self._waiting.append(line)
            elif event is None:
                self._waiting[-1] = line

    def _run(self) -> None:
        """The thread: one report a period, the last one after `close`."""
        last = -1.0
        ended = False
        while not ended:
            ended = self._stop.wait(self._period_s)
            if self.steps != last and not ended:
                last = self.steps
                self._event(None)
            try:
                self._write()
            except (OSError, ValueError) as error:
                self.trouble = f"{type(error).__name__}: {error}"

    def _write(self) -> None:
        with self._lock:
            lines = list(self._waiting)
        if not lines:
            return
        data = ("\n".join(lines) + "\n").encode()
        with open(self._file(), "ab", buffering=0) as stream:
            before = stream.tell()
            try:
                if stream.write(data) != len(data):
                    raise OSError("the spool's disk is full")
            except OSError:
                os.ftruncate(stream.fileno(), before)
                raise
        with self._lock:
            del self._waiting[: len(lines)]
        self.trouble = None

    def _file(self) -> Path:
        """The file in use; another one when it is large, gone or from an earlier process."""
        folder = self._folder
        if folder is None:
            raise OSError("no spool")
        path = self.path
        if path is not None:
            try:
                if path.stat().st_size < self._max_bytes:
                    return path
            except FileNotFoundError:
                pass
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{_SAFE.sub('_', self.job)}-r{self.rank}"
        while True:
            # By time: nobody can take the name first, and the folder need not be listed.
            path = folder / f"{stem}-{time.time_ns()}.jsonl"
            try:
                handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                continue
            try:
                os.fchmod(handle, 0o644)  # GOGH is another user, whatever the umask is
            finally:
                os.close(handle)
            self.path = path
            return path


class _Again:
    """After a fork the child has no thread: give it one, and a file of its own."""

    def __init__(self, progress: weakref.ref[Progress]) -> None:
        self._progress = progress

    def __call__(self) -> None:
        progress = self._progress()
        if progress is not None and not progress._stop.is_set():
            progress._lock = threading.Lock()
            progress._waiting = []
            progress.path = None
            progress._stop = threading.Event()
            progress._stop.set()  # a child reports only when it makes a Progress of its own


def _close_quietly(progress: weakref.ref[Progress]) -> None:
    found = progress()
    if found is not None:
        found.close()


def _int(given: int | None, *names: str) -> int:
    if given is not None:
        return given
    for name in names:
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return 0
