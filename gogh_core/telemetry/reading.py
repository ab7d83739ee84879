"""The process that reads files of the spool; it may die of what it reads, and ingest goes on.

`main` is started by `Reader` with one end of a socket. It gets lists of files and answers with
batches of typed rows and with the files that cannot be read. It has a limit of memory and, for
each file, of CPU seconds: the kernel ends it when they are over, whatever it is busy with. What it
is busy with is written to a shared place of two numbers, where it is found after its death.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gogh_core.errors import BatchRefused
from gogh_core.telemetry.parse import Limits, Parser, Piece, pieces
from gogh_core.telemetry.spool import Found, Position
from gogh_core.telemetry.wire import Hung, receive, send, send_table

__all__ = ["BUSY", "NO_MEMORY", "main", "reason_of"]

BUSY = struct.Struct("qq")
"""First and last file of the request that it is busy with."""
NO_MEMORY = 12
"""Exit code: what is left of this process would have too little for the next file."""
_BATCH_FILES = 20_000
_BATCH_BYTES = 512 * 2**20
_WORDS = 300  # of a reason that a library gives


def reason_of(error: BaseException) -> str:
    """Why a file is refused, in one line."""
    if isinstance(error, BatchRefused):
        return error.what + (f"; {error.todo}" if error.todo else "")
    line = " ".join(str(error).split())[:_WORDS].encode(errors="backslashreplace").decode()
    return f"cannot be read ({type(error).__name__}: {line})"


@dataclass
class _Batch:
    """Pieces of several files that wait to be turned into rows together."""

    pieces: list[Piece] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    """Number of the file of each piece."""
    rows: int = 0
    size: int = 0

    def add(self, file: int, piece: Piece) -> None:
        self.pieces.append(piece)
        self.files.append(file)
        self.rows += len(piece.cells)
        self.size += piece.cells.nbytes

    def forget(self, file: int) -> None:
        """Without the pieces of a file that was refused."""
        kept = [n for n, other in enumerate(self.files) if other != file]
        self.pieces = [self.pieces[n] for n in kept]
        self.files = [self.files[n] for n in kept]

    def parts(self) -> tuple[_Batch, _Batch]:
        """The files of the first half, and those of the second."""
        numbers = sorted(set(self.files))
        cut = numbers[len(numbers) // 2]
        halves = _Batch(), _Batch()
        for file, piece in zip(self.files, self.pieces, strict=True):
            halves[file >= cut].add(file, piece)
        return halves


class _Reading:
    """One request: files to be read, answered batch by batch."""

    def __init__(
        self, connection: socket.socket, busy: int, parser: Parser, limits: Limits, period_s: float
    ) -> None:
        self._connection = connection
        self._busy = busy
        self._parser = parser
        self._limits = limits
        self._period_s = period_s
        self._waits = False  # for ingest to have stored the last batch
        self._ended = 0  # files that were read to their end, or refused
        self._batch = _Batch()

    def run(self, files: Sequence[tuple[Found, Position | None]]) -> None:
        """Read everything; what cannot be read is refused, each file on its own."""
        for number, (found, known) in enumerate(files):
            try:
                with self._at(number, number):
                    self._file(number, found, known)
            except (Hung, ConnectionError):
                raise
            except (MemoryError, duckdb.OutOfMemoryException):
                self._mark(number, number)
                os._exit(NO_MEMORY)
            except Exception as error:  # noqa: BLE001 - it is that file which is refused
                self._refuse(number, error)
            self._ended = number + 1
        self._flush()
        self._go_on()
        send(self._connection, {"end": True})

    def _file(self, number: int, found: Found, known: Position | None) -> None:
        for piece in pieces(found, known, limits=self._limits, period_s=self._period_s):
            if piece.cells.nbytes > _BATCH_BYTES:
                raise BatchRefused(
                    f"{len(piece.cells)} of its rows unpack to {piece.cells.nbytes >> 20} MB"
                )
            self._batch.add(number, piece)
            full = self._batch.rows >= self._limits.batch_rows or self._batch.size >= _BATCH_BYTES
            if (full or len(self._batch.pieces) >= _BATCH_FILES) and number in self._flush():
                return
            self._mark(number, number)

    @contextlib.contextmanager
    def _at(self, first: int, last: int) -> Iterator[None]:
        """Busy with these files, for no longer than the limit."""
        self._mark(first, last)
        before, _ = signal.setitimer(signal.ITIMER_PROF, self._limits.seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, before)

    def _mark(self, first: int, last: int) -> None:
        os.pwrite(self._busy, BUSY.pack(first, last), 0)

    def _refuse(self, number: int, error: BaseException) -> None:
        self._batch.forget(number)
        send(self._connection, {"refused": number, "why": reason_of(error)})

    def _flush(self) -> set[int]:
        """Send what waits; the files that were refused meanwhile."""
        batch, self._batch = self._batch, _Batch()
        return self._send(batch) if batch.pieces else set()

    def _send(self, batch: _Batch) -> set[int]:
        first, last = min(batch.files), max(batch.files)
        try:
            with self._at(first, last):
                rows = self._parser.rows(batch.pieces)
                self._go_on()
                described = [_described(piece) for piece in batch.pieces]
                done = min(last + 1, self._ended)
                send_table(self._connection, {"pieces": described, "done": done}, rows)
        except (Hung, ConnectionError):
            raise
        except (MemoryError, duckdb.OutOfMemoryException):
            os._exit(NO_MEMORY)
        except Exception as error:  # noqa: BLE001 - one is at fault: each is tried apart
            if first == last:
                self._refuse(first, error)
                return {first}
            one, other = batch.parts()
            return self._send(one) | self._send(other)
        self._waits = True
        return set()

    def _go_on(self) -> None:
        """Wait until the last batch is stored; that time is not the file's."""
        if self._waits:
            left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
            receive(self._connection)
            signal.setitimer(signal.ITIMER_PROF, left)
            self._waits = False


def _described(piece: Piece) -> dict[str, Any]:
    """A piece without its cells, as JSON."""
    return {
        "source": piece.source,
        "table": piece.table,
        "range_from": piece.range_from,
        "range_to": piece.range_to,
        "checksum": piece.checksum,
        "after": None if piece.after is None else asdict(piece.after),
        "received": None if piece.received is None else piece.received.isoformat(),
        "notes": list(piece.notes),
    }


def _limit(limits: Limits) -> None:
    """What this process may use, from now on."""
    own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    memory = own + limits.memory_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_BATCH_BYTES, _BATCH_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # where the kernel must choose, it is this process
        Path("/proc/self/oom_score_adj").write_text("500")


def main(handle: int, busy: int) -> None:
    """Answer requests until ingest hangs up."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ingest decides
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(min(4, os.cpu_count() or 1))
    pa.set_io_thread_count(1)
    connection = socket.socket(fileno=handle)
    parser = Parser(Path())
    limited = False
    while True:
        try:
            request, _ = receive(connection)
            limits = Limits(**request["limits"])
            if not limited:
                _limit(limits)
                limited = True
            spill = Path(request["spill"])
            if parser.spill != spill:
                parser.close()
                parser = Parser(spill)
            files = [(_found(one["found"]), _position(one["known"])) for one in request["files"]]
            reading = _Reading(connection, busy, parser, limits, float(request["period_s"]))
            reading.run(files)
        except (Hung, ConnectionError):
            break
    sys.stdout.flush()
    os._exit(0)


def _found(facts: dict[str, Any]) -> Found:
    return Found(**{**facts, "path": Path(facts["path"])})


def _position(facts: dict[str, Any] | None) -> Position | None:
    return None if facts is None else Position(**facts)
