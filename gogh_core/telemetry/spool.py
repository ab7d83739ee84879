"""The spool: which files are there, which may be read, and how far each has been read.

`scan` lists the regular files of the known folders and refuses links, devices and anything that
leads outside. `Position` is what the ledger knows of a file. `open_safely` follows no link, not
even one that was put there after the scan.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gogh_core.errors import BatchRefused

__all__ = ["FOLDERS", "Found", "Position", "head_sha256", "open_safely", "scan", "strays"]

# Folder of the spool -> table. The order is that of ingest: who ran where comes first.
FOLDERS: Mapping[str, str] = {
    "events": "job_events",
    "progress": "job_progress",
    "gpu": "gpu_samples",
    "smi": "gpu_samples",
    "zeus": "energy_windows",
}
_ENDINGS: Mapping[str, tuple[str, ...]] = {
    "events": (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet"),
    "progress": (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet"),
    "gpu": (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".parquet"),
    "smi": (".csv", ".csv.gz", ".log"),
    "zeus": (".csv",),
}
HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Position:
    """How far one file has been taken in."""

    path: str
    head_sha256: str = ""
    head_bytes: int = 0
    position: int = 0
    lines: int = 0
    size: int = -1
    """Of the file when it had been read to its end; -1 where something of it is left."""
    mtime_ns: int = 0
    header: str | None = None
    anchor: float | None = None
    skew_s: float = 0.0
    status: str = "taken"
    detail: str | None = None
    updated_s: float | None = None
    """When that was written down, in epoch seconds of the cluster's clock; None: just now."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the spool; `refused` says why it may not be read."""

    folder: str
    name: str
    path: Path
    size: int = 0
    mtime_ns: int = 0
    refused: str | None = None
    uid: int = -1
    """Of the user who wrote it; -1: a file that a person named."""
    writable: bool = False
    """By anybody."""

    @property
    def table(self) -> str:
        """The table its rows are for."""
        return FOLDERS[self.folder]

    @property
    def key(self) -> str:
        """Its path below the spool, which is its name in the ledger."""
        return f"{self.folder}/{self.name}"

    @property
    def stem(self) -> str:
        """The name without endings and running number: a server or a job."""
        stem = self.name
        for ending in sorted(_ENDINGS[self.folder], key=len, reverse=True):
            if stem.endswith(ending):
                stem = stem.removesuffix(ending)
                break
        base, dash, number = stem.rpartition("-")
        return base if dash and base and _is_number(number) else stem

    def unchanged(self, known: Position | None) -> bool:
        """Whether it was read to its end and nothing was written since."""
        return known is not None and (known.size, known.mtime_ns) == (self.size, self.mtime_ns)


def scan(spool: Path, *, max_file_mb: int) -> Iterator[Found]:
    """Every file of the spool's folders by name; `.open` files are left alone."""
    if spool.is_symlink():
        raise BatchRefused("the spool is a symbolic link", where=str(spool))
    for folder in FOLDERS:
        root = spool / folder
        if root.is_symlink():
            yield Found(folder, "", root, refused="the folder is a symbolic link")
            continue
        if not root.is_dir():
            continue
        with os.scandir(root) as entries:
            listed = sorted(entries, key=lambda entry: _natural(entry.name))
        for entry in listed:
            if entry.name.startswith(".") or entry.name.endswith((".open", ".tmp")):
                continue
            yield _found(folder, entry, max_file_mb)


def strays(spool: Path) -> list[str]:
    """What lies in the spool outside of its folders, where nothing is read."""
    with os.scandir(spool) as entries:
        return sorted(shown(e.name) for e in entries if e.name not in FOLDERS and e.name[0] != ".")


def _natural(name: str) -> tuple[str, int, str]:
    """`s1-9.csv` before `s1-10.csv`: in the order they were written."""
    base, _, rest = name.rpartition("-")
    number, dot, ending = rest.partition(".")
    return (base, int(number), dot + ending) if base and _is_number(number) else (name, -1, "")


def _is_number(text: str) -> bool:
    """Plain digits only: others are digits to Python too, and no numbers."""
    return text.isascii() and text.isdigit()


def shown(name: str) -> str:
    """A name of a file as text; what is not UTF-8 or cannot be printed is written in escapes."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _ledger_name(name: str) -> str:
    """A name that can be kept; one that cannot be is told apart by its checksum."""
    text = shown(name)
    mark = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    return name if text == name else f"{text} ({mark})"


def _found(folder: str, entry: os.DirEntry[str], max_file_mb: int) -> Found:
    path = Path(entry.path)
    name = _ledger_name(entry.name)
    if name != entry.name:
        return Found(folder, name, path, refused="its name is not plain UTF-8")
    try:
        facts = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return Found(folder, entry.name, path, refused="vanished while it was listed")
    if stat.S_ISLNK(facts.st_mode):
        return Found(folder, entry.name, path, refused="is a symbolic link")
    if not stat.S_ISREG(facts.st_mode):
        return Found(folder, entry.name, path, refused="is no regular file")
    refused = None
    if not entry.name.endswith(_ENDINGS[folder]):
        refused = f"has no known ending ({', '.join(_ENDINGS[folder])})"
    elif facts.st_size > max_file_mb * 1024 * 1024:
        refused = f"is {facts.st_size / 2**20:.0f} MB; more than {max_file_mb} MB are not read"
    elif folder == "progress" and facts.st_nlink > 1:
        refused = "has several names (hard links)"
    writable = bool(facts.st_mode & stat.S_IWOTH)
    size, written = facts.st_size, facts.st_mtime_ns
    return Found(folder, entry.name, path, size, written, refused, facts.st_uid, writable)


def open_safely(path: Path) -> BinaryIO:
    """The file, opened without following a link; a link or device put there since is refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BatchRefused(f"cannot be opened: {error.strerror}", where=path.name) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BatchRefused("is no regular file", where=path.name)
    return os.fdopen(handle, "rb")


def head_sha256(stream: BinaryIO, count: int) -> str:
    """What a file begins with; the stream is at its start afterwards."""
    stream.seek(0)
    digest = hashlib.sha256(stream.read(count)).hexdigest()
    stream.seek(0)
    return digest
