"""What DuckDB and the file system refuse, as errors of ours that say what to do."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from gogh_core.errors import StoreCorrupt, StoreError

__all__ = ["AGAIN", "REPAIR", "file_errors", "first_line", "is_damage", "is_full", "ours"]

REPAIR = "restore a backup (`gogh restore`)"
AGAIN = "make a new one (`gogh snapshot`)"

_FULL = re.compile(r"No space left|Disk quota exceeded|File too large", re.IGNORECASE)
_DAMAGED = re.compile(r"Corrupt database file|replaying WAL|deserialize", re.IGNORECASE)
_BROKEN = (duckdb.FatalException, duckdb.InternalException, duckdb.SerializationException)


@contextmanager
def file_errors(where: Path) -> Iterator[None]:
    """What the file system refuses becomes an error of ours."""
    try:
        yield
    except OSError as error:
        place = Path(error.filename or where)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise _full(place) from error
        raise StoreError(
            error.strerror or str(error), where=str(place), todo="see who may write there"
        ) from error


def ours(
    error: duckdb.Error, path: Path, *, opening: bool = False, todo: str = REPAIR
) -> StoreError:
    """What DuckDB says about a file, as an error of ours."""
    text = first_line(error)
    if is_full(error):
        return _full(path)
    if isinstance(error, duckdb.OutOfMemoryException):
        return StoreError(text, where=str(path), todo="raise store.memory_limit_mb")
    if opening:
        return StoreCorrupt(f"cannot be opened as a database: {text}", where=str(path), todo=todo)
    if is_damage(error):
        return StoreCorrupt(text, where=str(path), todo=todo)
    if isinstance(error, duckdb.IOException):
        return StoreError(text, where=str(path), todo="see who may read and write there")
    return StoreError(text, where=str(path))


def is_damage(error: duckdb.Error) -> bool:
    """Whether it is the file that is wrong, not what was asked."""
    return isinstance(error, _BROKEN) or _DAMAGED.search(str(error)) is not None


def is_full(error: duckdb.Error) -> bool:
    """Whether the disk has no room."""
    return _FULL.search(str(error)) is not None


def first_line(error: duckdb.Error) -> str:
    """What DuckDB says, without the text of the query."""
    return str(error).strip().splitlines()[0]


def _full(path: Path) -> StoreError:
    near = next((p for p in (path, *path.parents) if p.exists()), Path())
    free = shutil.disk_usage(near).free
    return StoreError(
        f"the disk is full ({free} bytes left); nothing was changed",
        where=str(path),
        todo="make room; the next run goes on",
    )
