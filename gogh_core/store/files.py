"""Files on disk, so that a power cut or a kill leaves the old or the new one, never half of one."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from gogh_core.errors import StoreError
from gogh_core.settings import Settings
from gogh_core.store import gate

__all__ = [
    "checksum",
    "copy",
    "make_folder",
    "make_home",
    "now_utc",
    "only_one",
    "remove",
    "remove_at",
    "replace",
    "sync",
    "sync_folder",
    "whole_or_gone",
    "write_at",
]


def now_utc() -> datetime:
    """The wall's clock: of files and processes. What the cluster does has the cluster's time."""
    return datetime.now(UTC)


def _copy_range(source: int, target: int, start: int, length: int) -> int:
    """Copy bytes between two open files at the same offset; how many there were."""
    done = 0
    while done < length:
        try:
            part = os.copy_file_range(source, target, length - done, start + done, start + done)
        except OSError:
            # Some file systems cannot do it inside the kernel.
            data = os.pread(source, min(length - done, 1 << 20), start + done)
            part = os.pwrite(target, data, start + done)
        if part == 0:
            break
        done += part
    return done


def copy(source: Path, target: Path) -> None:
    """A copy that is on disk when this returns."""
    with source.open("rb", buffering=0) as old, target.open("xb", buffering=0) as new:
        _copy_range(old.fileno(), new.fileno(), 0, os.fstat(old.fileno()).st_size)
        os.fsync(new.fileno())
    sync_folder(target.parent)


def write_at(target: int, data: bytes, start: int) -> None:
    """Write all of `data` into an open file at an offset."""
    left = memoryview(data)
    while left:
        done = os.pwrite(target, left, start)
        start, left = start + done, left[done:]


def checksum(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Bring a file's content to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Bring a folder's entries to the disk."""
    sync(path)


def replace(source: Path, target: Path) -> None:
    """Put `source` in the place of `target` in one step that survives a power cut."""
    os.replace(source, target)
    sync_folder(target.parent)


def remove(path: Path) -> None:
    """Remove a file that may be missing."""
    path.unlink(missing_ok=True)


def remove_at(folder: int, name: str) -> None:
    """Remove a file of an opened folder; it may be missing."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def make_folder(path: Path) -> None:
    """Make a folder with its parents, all on disk."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


@contextmanager
def whole_or_gone(staged: Path) -> Iterator[None]:
    """What is being made beside its place is removed when the block raises, with DuckDB's log."""
    try:
        yield
    except BaseException:
        if staged.is_dir() and not staged.is_symlink():
            shutil.rmtree(staged)
        else:
            staged.unlink(missing_ok=True)
            staged.with_name(staged.name + ".wal").unlink(missing_ok=True)
        raise


def make_home(settings: Settings) -> None:
    """Make the folder of everything GOGH keeps, closed to others; close one that is too open.

    A folder that is more than a home of ours is left as it is: `/tmp`, the user's own home, the
    current folder.
    """
    home, mode = settings.home.absolute(), 0o777 & ~settings.umask_bits
    try:
        try:
            if not home.parent.exists():
                home.parent.mkdir(parents=True)
            home.mkdir(mode)
        except FileExistsError:
            found = home.stat()
            if not stat.S_ISDIR(found.st_mode):
                raise
            shared = found.st_mode & stat.S_ISVTX or home in (Path.home(), Path.cwd())
            if shared or found.st_uid != os.geteuid() or not found.st_mode & settings.umask_bits:
                return
            home.chmod(stat.S_IMODE(found.st_mode) & mode)
    except OSError as error:
        raise StoreError(
            f"cannot be made: {error.strerror}", where=str(home), todo="set `home`"
        ) from error


@contextmanager
def only_one(path: Path, timeout_s: float) -> Iterator[None]:
    """One process at a time."""
    with gate.hold(path, timeout_s):
        yield
