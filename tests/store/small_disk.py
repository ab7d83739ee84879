"""A disk of a few megabytes that a test fills up: a tmpfs, where one may be mounted."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["SmallDisk", "small_disk"]


class SmallDisk:
    """A file system with little room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / ".filler"

    def fill(self, *, leave: int = 0) -> None:
        """Take all the room but `leave` bytes."""
        room = max(0, shutil.disk_usage(self.folder).free - leave)
        with self._filler.open("ab", buffering=0) as file:
            file.write(bytes(room // 4096 * 4096))

    def make_room(self) -> None:
        """Give it back."""
        self._filler.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mount it for as long as the block lasts; the test is skipped where that is not allowed."""
    folder.mkdir(parents=True)
    size = f"size={megabytes}m"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"there is no mount: {error}")
    if done.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
