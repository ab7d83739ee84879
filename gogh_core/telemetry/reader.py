"""Files of the spool read by another process, which may die without harm.

`Reader.read` gives batches of rows and refusals. When the process dies (out of memory, over its
time, killed by what it read), the file it was busy with is refused with the reason; where several
were read together, they are tried apart. `reader` lends one that is running already, since a new
one takes a third of a second to start.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from gogh_core.telemetry.parse import Limits, Piece
from gogh_core.telemetry.reading import BUSY, NO_MEMORY
from gogh_core.telemetry.spool import Found, Position
from gogh_core.telemetry.wire import Hung, receive, send

__all__ = ["Batch", "Reader", "Refusal", "reader"]

_START = "from gogh_core.telemetry.reading import main; import sys; main(*map(int, sys.argv[1:]))"
_WALL = 4.0  # seconds by the clock for each second of CPU: the machine may be busy
_GRACE_S = 15.0  # after the kernel should have ended it
_DEATHS = 20  # in one run; the rest of the files wait for the next
_EMPTY = pa.table({})


@dataclass(frozen=True, slots=True)
class Batch:
    """Typed rows of some pieces; the pieces come without their cells."""

    pieces: list[Piece]
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file that cannot be read, and why."""

    found: Found
    why: str


class _Died(Exception):
    """The process ended while it was busy with some files."""

    def __init__(self, why: str, first: int, last: int, *, for_sure: bool) -> None:
        super().__init__(why)
        self.why, self.first, self.last = why, first, last
        self.for_sure = for_sure
        """Whether it was that file, and not what others had left behind."""


class Reader:
    """A process that reads files, started anew when it died."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._busy = -1
        self._fresh = True

    def start(self) -> None:
        """Start it without waiting for it."""
        if self._process is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._busy = os.memfd_create("gogh-busy", os.MFD_CLOEXEC)
        os.pwrite(self._busy, BUSY.pack(0, 0), 0)
        with theirs:
            handles = (theirs.fileno(), self._busy)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, *map(str, handles)],
                pass_fds=handles,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
            )
        self._fresh = True
        ours.settimeout(_WALL * self.limits.seconds + _GRACE_S)
        self._connection = ours

    def close(self) -> None:
        """End it now."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._busy >= 0:
            os.close(self._busy)
            self._busy = -1

    def read(
        self,
        found: Sequence[Found],
        known: Mapping[str, Position],
        *,
        period_s: float,
        spill: Path,
    ) -> Iterator[Batch | Refusal]:
        """Everything new in these files. Store a batch before you ask for the next."""
        groups = [list(found)]
        deaths = 0
        while groups:
            group = groups.pop(0)
            if not group:
                continue
            done = 0
            refused: set[int] = set()
            try:
                for message, rows in self._ask(self._request(group, known, period_s, spill)):
                    if rows is None:
                        refused.add(message["refused"])
                        yield Refusal(group[message["refused"]], str(message["why"]))
                    else:
                        yield Batch([_piece(facts) for facts in message["pieces"]], rows)
                        done = message["done"]
            except _Died as death:
                left = [n for n in range(done, len(group)) if n not in refused]
                guilty = [n for n in left if death.first <= n <= death.last]
                others = [group[n] for n in left if n not in guilty]
                deaths += 1
                half = len(guilty) // 2
                apart = [guilty[:half], guilty[half:]] if half else []
                if not half and not death.for_sure:
                    apart = [guilty]  # once more, with all the memory there is
                elif not half:
                    yield Refusal(group[guilty[0]], death.why)
                groups[:0] = [*([group[n] for n in part] for part in apart), others]
                if deaths >= _DEATHS:
                    return

    def _ask(self, request: dict[str, Any]) -> Iterator[tuple[dict[str, Any], pa.Table | None]]:
        """The answers to one request; the process is ended where they are not heard out."""
        self.start()
        connection = self._connection
        assert connection is not None
        heard = False
        fresh, self._fresh = self._fresh and len(request["files"]) == 1, False
        try:
            send(connection, request)
            while True:
                message, rows = receive(connection)
                if "end" in message:
                    break
                yield message, rows
                if rows is not None:
                    send(connection, {"stored": True})
            heard = True
        except (Hung, ConnectionError, TimeoutError, ValueError, pa.ArrowException) as error:
            why, busy, full = self._post_mortem(error)
            raise _Died(why, *busy, for_sure=fresh or not full) from error
        finally:
            if not heard:
                self.close()

    def _request(
        self,
        group: Sequence[Found],
        known: Mapping[str, Position],
        period_s: float,
        spill: Path,
    ) -> dict[str, Any]:
        files = []
        for found in group:
            before = known.get(found.key)
            facts = {**asdict(found), "path": str(found.path)}
            files.append({"found": facts, "known": None if before is None else asdict(before)})
        return {
            "files": files,
            "limits": asdict(self.limits),
            "spill": str(spill.absolute()),
            "period_s": period_s,
        }

    def _post_mortem(self, error: Exception) -> tuple[str, tuple[int, int], bool]:
        """Why it died, of which files, and whether its memory was full."""
        process = self._process
        assert process is not None
        full = f"takes more than {self.limits.memory_mb} MB to read (telemetry.read_memory_mb)"
        over = f"takes longer than {self.limits.seconds:g} s to read (telemetry.read_limit_s)"
        code = None
        if isinstance(error, TimeoutError):
            process.kill()
            process.wait()
            why = over
        else:
            try:
                code = process.wait(timeout=_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            why = {-signal.SIGPROF: over, NO_MEMORY: full}.get(
                code, f"ends the process that reads it ({_how(code)})"
            )
        first, last = BUSY.unpack(os.pread(self._busy, BUSY.size, 0))
        return why, (first, last), code == NO_MEMORY


def _how(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _environment() -> dict[str, str]:
    """Ours, with few threads: their stacks count as memory."""
    paths = [os.path.abspath(entry) for entry in sys.path]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }


def _piece(facts: Mapping[str, Any]) -> Piece:
    after, received = facts["after"], facts["received"]
    return Piece(
        str(facts["source"]),
        str(facts["table"]),
        _EMPTY,
        str(facts["range_from"]),
        str(facts["range_to"]),
        str(facts["checksum"]),
        None if after is None else Position(**after),
        None if received is None else datetime.fromisoformat(received),
        tuple(map(str, facts["notes"])),
        form="rows",
    )


_idle: list[Reader] = []
_guard = threading.Lock()


@contextmanager
def reader(limits: Limits) -> Iterator[Reader]:
    """A reader with these limits; it stays for the next one who asks."""
    with _guard:
        fits = [one for one in _idle if one.limits == limits]
        for one in _idle:
            if one not in fits:
                one.close()
        chosen = fits.pop() if fits else Reader(limits)
        _idle[:] = fits
    chosen.start()
    try:
        yield chosen
    except BaseException:
        chosen.close()
        raise
    with _guard:
        _idle.append(chosen)


def _forget() -> None:
    """A forked process has no reader of its own: the other one goes on with it."""
    global _guard
    _guard = threading.Lock()
    for one in _idle:
        if one._connection is not None:
            one._connection.close()
        one._connection = one._process = None
    _idle.clear()


def _close() -> None:
    for one in _idle:
        one.close()


atexit.register(_close)
os.register_at_fork(after_in_child=_forget)
