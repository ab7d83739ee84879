"""The snapshot: a copy of the database that people read while writers go on.

A copy is taken in slices, each under the gate, so a writer waits for one slice at most. Blocks that
were written meanwhile are copied again at the end, under the gate: DuckDB keeps a checksum at the
start of each block, so they are found by reading eight bytes of each. Then the copy replaces the
old snapshot in one step.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
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
    files.remove(target)
    with target.open("xb+", buffering=0) as copy:
        _copy_slices(store, copy.fileno())
        files.sync(target)
        _, had = _checksums(copy.fileno())
        with store.gate():
            checkpoint(store)
            copied_at = time.time()
            with store.path.open("rb", buffering=0) as source:
                _copy_changed(source.fileno(), copy.fileno(), had)
    return copied_at


def checkpoint(store: Store) -> None:
    """Write a log that a killed writer left into the database; the caller holds the gate.

    Closing a connection does that by itself, so there is seldom anything to do.
    """
    if store.path.with_name(store.path.name + ".wal").exists():
        with store.connect() as connection:
            fetch(connection, "store_checkpoint")


def _copy_slices(store: Store, copy: int) -> None:
    at = 0
    while True:
        with store.gate(), store.path.open("rb", buffering=0) as source:
            done = files.copy_range(source.fileno(), copy, at, _SLICE_BYTES)
        if done < _SLICE_BYTES:
            return
        at += done
        time.sleep(gate.LONGEST_WAIT_S)  # a writer that waits has its turn now


def _checksums(file: int) -> tuple[int, list[bytes]]:
    """Size of a block and what stands first in each; no blocks where the layout is not ours."""
    size = os.fstat(file).st_size
    if size <= _HEADERS_BYTES:
        return 0, []
    with mmap.mmap(file, 0, prot=mmap.PROT_READ) as seen:
        (block,) = struct.unpack_from("<Q", seen, _BLOCK_SIZE_AT)
        if block < 4096 or (size - _HEADERS_BYTES) % block:
            return 0, []
        return block, [seen[at : at + 8] for at in range(_HEADERS_BYTES, size, block)]


def _copy_changed(source: int, copy: int, had: list[bytes]) -> None:
    size = os.fstat(source).st_size
    block, now = _checksums(source)
    if not block:
        # Not the layout we know: the whole file again is always right.
        os.ftruncate(copy, 0)
        files.copy_range(source, copy, 0, size)
        return
    os.ftruncate(copy, size)
    files.copy_range(source, copy, 0, _HEADERS_BYTES)
    for index, checksum in enumerate(now):
        if index >= len(had) or had[index] != checksum:
            files.copy_range(source, copy, _HEADERS_BYTES + index * block, block)
