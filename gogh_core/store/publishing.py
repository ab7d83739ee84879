"""The snapshot: a copy of the database that people read while writers go on.

Blocks are read in slices, each under the gate, and written after letting go of it: a writer waits
for the reading of one slice at most, never for the disk that the copy goes to. What was written
meanwhile is read again: DuckDB keeps a checksum at the start of each block, so changed blocks are
found by reading eight bytes of each, and a counter in its headers, so that where nobody wrote
nothing has to be looked for. When changed blocks are no more than a slice, they and the headers
are read under one hold of the gate, and the copy shows that moment. Then it replaces the old
snapshot in one step.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gogh_core.store import files, gate
from gogh_core.store.texts import fetch

if TYPE_CHECKING:
    from gogh_core.store.database import Store

__all__ = ["checkpoint", "copy_database", "publish"]

# Layout of a DuckDB file: a main header and two that take turns, 4 KiB each, then blocks. The
# second holds the size of a block at byte 40.
_HEADERS_BYTES = 3 * 4096
_BLOCK_SIZE_AT = 4096 + 40
_SLICE_BYTES = 2 << 20
_ROUNDS = 8
"""After so many rounds among writers who never rest, the last takes however much there is."""


def publish(store: Store) -> Path:
    """Copy what is committed and replace the snapshot by it."""
    staged = store.snapshot_path.with_name(store.snapshot_path.name + ".new")
    with files.only_one(
        staged.with_name(staged.name + ".lock"), store.settings.store.lock_timeout_s
    ):
        copied_at = copy_database(store, staged)
        os.utime(staged, (copied_at, copied_at))
        files.sync(staged)
        files.replace(staged, store.snapshot_path)
    return store.snapshot_path


def copy_database(store: Store, target: Path) -> float:
    """A consistent copy of the database at `target`; the time whose state it shows."""
    had: dict[int, bytes] = {}
    files.remove(target)
    with target.open("xb", buffering=0) as copy:
        with _source(store) as source:
            layout = _Layout.of(source)
        changed = list(layout.starts)
        for _ in range(_ROUNDS):
            count = max(1, _SLICE_BYTES // (layout.block or _SLICE_BYTES))
            if len(changed) <= count:
                break
            for first in range(0, len(changed), count):
                with _source(store) as source:
                    blocks = _read(source, changed[first : first + count], layout.block)
                _write(copy.fileno(), blocks, had)
                time.sleep(gate.LONGEST_WAIT_S)  # a writer that waits has its turn now
            with _source(store) as source:
                before, layout = layout, _Layout.of(source)
            # Outside of the gate: what is written meanwhile shows in the headers.
            with store.path.open("rb", buffering=0) as source_now:
                changed = layout.changed(source_now.fileno(), had, since=before)
        with _source(store) as source:
            checkpoint(store)
            copied_at = time.time()
            before, layout = layout, _Layout.of(source)
            if layout != before:
                changed = layout.changed(source, had, since=before)
            blocks = _read(source, range(0, layout.head, 4096), 4096)
            blocks += _read(source, changed, layout.block)
        _write(copy.fileno(), blocks, had)
        os.ftruncate(copy.fileno(), layout.size)
    return copied_at


def checkpoint(store: Store) -> None:
    """Write a log that a killed writer left into the database; the caller holds the gate.

    Closing a connection does that by itself, so there is seldom anything to do.
    """
    if store.path.with_name(store.path.name + ".wal").exists():
        with store.connect() as connection:
            fetch(connection, "store_checkpoint")


@contextmanager
def _source(store: Store) -> Iterator[int]:
    """The database's file, which nobody writes for as long as this is held."""
    with store.gate(), store.path.open("rb", buffering=0) as source:
        yield source.fileno()


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which parts of the file can be told apart, as it is now; equal only if nobody wrote since."""

    size: int
    head: int
    """Bytes that are always read last; all of them where the layout is not the known one."""
    block: int
    headers: bytes
    """DuckDB counts in them how often it wrote."""

    @classmethod
    def of(cls, file: int) -> _Layout:
        size = os.fstat(file).st_size
        headers = os.pread(file, _HEADERS_BYTES, 0)
        if size > _HEADERS_BYTES:
            (block,) = struct.unpack_from("<Q", headers, _BLOCK_SIZE_AT)
            if block >= 4096 and (size - _HEADERS_BYTES) % block == 0:
                return cls(size, _HEADERS_BYTES, block, headers)
        return cls(size, size, 0, headers)

    @property
    def starts(self) -> range:
        """Where the blocks begin."""
        return range(self.head, self.size, self.block) if self.block else range(0)

    def changed(self, file: int, had: dict[int, bytes], *, since: _Layout) -> list[int]:
        """Where the blocks begin of which `had` has another checksum or none."""
        if self == since:
            return [at for at in self.starts if at not in had]
        return [at for at, checksum in _read(file, self.starts, 8) if had.get(at) != checksum]


def _read(source: int, starts: Iterable[int], length: int) -> list[tuple[int, bytes]]:
    return [(at, os.pread(source, length, at)) for at in starts]


def _write(copy: int, blocks: list[tuple[int, bytes]], had: dict[int, bytes]) -> None:
    for at, data in blocks:
        files.write_at(copy, data, at)
        had[at] = data[:8]
    os.fdatasync(copy)  # bit by bit: one large sync at the end would delay what writers sync
