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
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gogh_core.errors import StoreCorrupt
from gogh_core.store import blocks, commits, files, gate
from gogh_core.store.texts import fetch

if TYPE_CHECKING:
    from gogh_core.store.database import Store

__all__ = ["checkpoint", "copy_database", "publish"]

_SLICE_BYTES = 2 << 20
_ROUNDS = 8
"""After so many rounds among writers who never rest, the last takes however much there is."""


def publish(store: Store) -> Path:
    """Copy what is committed and replace the snapshot by it, if all of it is sound."""
    staged = store.snapshot_path.with_name(store.snapshot_path.name + ".new")
    lock = staged.with_name(staged.name + ".lock")
    with (
        files.only_one(lock, store.settings.store.lock_timeout_s),
        files.whole_or_gone(staged),
    ):
        copied_at = copy_database(store, staged)
        os.utime(staged, (copied_at, copied_at))
        files.sync(staged)
        files.replace(staged, store.snapshot_path)
    return store.snapshot_path


def copy_database(store: Store, target: Path) -> float:
    """A consistent copy of the database at `target`; the time whose state it shows.

    Every header and block is checked against its checksum. What looks damaged is looked at twice: a
    program that knows no gate (a DuckDB shell) may have written just then.
    """
    try:
        return _copy(store, target)
    except StoreCorrupt:
        return _copy(store, target)


def _copy(store: Store, target: Path) -> float:
    files.remove(target)
    with target.open("x+b", buffering=0) as file:
        copy = _Copy(file.fileno(), store.path)
        with _source(store) as source:
            layout = blocks.Layout.of(source)
        changed = list(layout.starts)
        for _ in range(_ROUNDS):
            count = max(1, _SLICE_BYTES // (layout.block or _SLICE_BYTES))
            if len(changed) <= count:
                break
            for first in range(0, len(changed), count):
                with _source(store) as source:
                    part = _read(source, changed[first : first + count], layout.block)
                copy.write(part)
                time.sleep(gate.LONGEST_WAIT_S)  # a writer that waits has its turn now
            with _source(store) as source:
                before, layout = layout, blocks.Layout.of(source)
            # Outside of the gate: what is written meanwhile shows in the headers.
            with store.path.open("rb", buffering=0) as source_now:
                changed = layout.changed(source_now.fileno(), copy.had, since=before)
        with _source(store) as source:
            checkpoint(store)
            copied_at = time.time()
            before, layout = layout, blocks.Layout.of(source)
            if layout != before:
                changed = layout.changed(source, copy.had, since=before)
            part = _read(source, changed, layout.block)
            said = commits.told(store.path)
        copy.write(part)
        copy.finish(layout)
    with store.connect(target, read_only=True) as connection:
        commits.check(connection, store.path, said)
    return copied_at


class _Copy:
    """The copy as far as it is written, and which of its blocks are not what was written once."""

    def __init__(self, file: int, of: Path) -> None:
        self.had: dict[int, bytes] = {}
        self._file = file
        self._of = of
        self._damaged: set[int] = set()

    def write(self, part: list[tuple[int, bytes]]) -> None:
        for at, data in part:
            files.write_at(self._file, data, at)
            self.had[at] = data[:8]
            if blocks.is_sound(data):
                self._damaged.discard(at)
            else:
                self._damaged.add(at)
        os.fdatasync(self._file)  # bit by bit: one large sync would delay what writers sync

    def finish(self, layout: blocks.Layout) -> None:
        """Write the headers; refused where they or a block in use are damaged or missing."""
        if not layout.block:
            raise self._refused(0)
        files.write_at(self._file, layout.headers, 0)
        os.ftruncate(self._file, layout.size)
        missing = {at for at in layout.counted if at >= layout.size}
        bad = self._damaged | missing
        if bad:
            bad &= blocks.in_use(self._file, layout, bad)
        if bad:
            raise self._refused(min(bad))

    def _refused(self, at: int) -> StoreCorrupt:
        return StoreCorrupt(
            f"is damaged: the block at byte {at} is not what was written",
            where=str(self._of),
            todo="restore a backup (`gogh restore`); the last snapshot is kept as it is",
        )


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


def _read(source: int, starts: Iterable[int], length: int) -> list[tuple[int, bytes]]:
    return [(at, os.pread(source, length, at)) for at in starts]
