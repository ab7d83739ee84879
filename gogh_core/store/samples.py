"""The folder of samples: whose it is, which names in it are ours, and how files leave it.

A folder belongs to one database: the file `owner.json` in it names the database and its id. Nothing
is written to or removed from a folder that belongs to another. Only files with names of our own
form are removed, below the opened folder and never through links.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gogh_core.errors import StoreCorrupt, StoreError
from gogh_core.store import files

__all__ = [
    "checked",
    "claim",
    "claimed_at",
    "folder_of",
    "leave",
    "make_place",
    "opened",
    "owner",
    "remove",
    "strays",
    "take_over",
]

_OWNER = "owner.json"
_FORM = re.compile(
    r"(gpu_samples|job_progress)/day=\d{1,4}-\d\d-\d\d/(hour=\d\d/)?[0-9a-f]{32}\.(parquet|part)"
)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def folder_of(database: Path) -> Path:
    """The folder of a database's samples."""
    return database.with_suffix(".samples")


def checked(names: Collection[str], where: Path) -> list[str]:
    """The names of a manifest, all of our own form; refused otherwise."""
    for name in names:
        if not (_FORM.fullmatch(name) and name.endswith(".parquet")):
            raise StoreCorrupt(
                f"its list of samples names {name!r}, which is no file of samples",
                where=str(where),
                todo="somebody else wrote to it: restore a backup (`gogh restore`)",
            )
    return list(names)


# -- whose it is ---------------------------------------------------------------------------------


def owner(folder: Path) -> tuple[str, str] | None:
    """The file name and the id of the database that a folder belongs to, if it says so."""
    try:
        raw: Any = json.loads((folder / _OWNER).read_text(encoding="utf-8"))
        return str(raw["database"]), str(raw["store_id"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError("cannot be read", where=str(folder / _OWNER), todo=_TODO) from error


_TODO = "move that folder away, or set store.path to another file"


def claim(folder: Path, database: Path, store_id: str, names: Collection[str]) -> None:
    """Make the folder ours, or see that it is; `names` are the files of our manifest."""
    found = owner(folder)
    if found is None:
        _must_be_free(folder, names)
        files.make_folder(folder)
        staged = folder / (_OWNER + ".part")
        with files.whole_or_gone(staged):
            raw = {"database": database.name, "store_id": store_id}
            staged.write_text(json.dumps(raw) + "\n", encoding="utf-8")
            files.sync(staged)
            files.replace(staged, folder / _OWNER)
    elif found != (database.name, store_id):
        raise StoreError(
            f"holds the samples of another database ({found[0]}, id {found[1]}), "
            f"not of {database.name}, id {store_id}",
            where=str(folder),
            todo=_TODO,
        )


def claimed_at(folder: Path) -> float:
    """When the folder became ours, by the clock of its files."""
    return (folder / _OWNER).stat().st_mtime


def _must_be_free(folder: Path, names: Collection[str]) -> None:
    if not folder.exists() and not folder.is_symlink():
        return
    ours = {*names, _OWNER + ".part"}
    with opened(folder) as handle:
        for name in _walk(handle):
            if name not in ours and name.removesuffix(".part") + ".parquet" not in ours:
                raise StoreError(f"holds {name}, which is not ours", where=str(folder), todo=_TODO)


# -- what is in it -------------------------------------------------------------------------------


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """The folder itself, not what a link in its place points to."""
    try:
        handle = os.open(folder, _FOLDER)
    except (NotADirectoryError, OSError) as error:
        raise StoreError(
            f"cannot be opened as a folder of samples: {error.strerror}",
            where=str(folder),
            todo=_TODO,
        ) from error
    try:
        yield handle
    finally:
        os.close(handle)


def _walk(folder: int) -> Iterator[str]:
    """Every file below the folder, links among them and never through them."""
    for place, links, names, _ in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        for name in (*names, *links):
            path = os.path.normpath(os.path.join(place, name))
            if not stat.S_ISDIR(os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode):
                yield path


def strays(folder: int, named: Collection[str]) -> list[str]:
    """Files with names of our own form that the manifest does not name."""
    return [path for path in _walk(folder) if _FORM.fullmatch(path) and path not in named]


def make_place(folder: Path, name: str) -> None:
    """Make the folders that a file is to be in; refused where one of them is a link."""
    place = (folder / name).parent
    files.make_folder(place)
    for path in (place, *place.parents):
        with opened(path):
            pass
        if path == folder:
            return


def remove(folder: int, name: str) -> None:
    """Remove a file of ours below the opened folder, and the folders that are empty then."""
    if not _FORM.fullmatch(name):
        raise StoreCorrupt(f"{name!r} is no file of samples and is not removed")
    *places, last = name.split("/")
    with ExitStack() as stack:
        handles = [folder]
        for place in places:
            try:
                handle = os.open(place, _FOLDER, dir_fd=handles[-1])
            except FileNotFoundError:
                return
            stack.callback(os.close, handle)
            handles.append(handle)
        files.remove_at(handles[-1], last)
        for above, place in zip(reversed(handles[:-1]), reversed(places), strict=True):
            try:
                os.rmdir(place, dir_fd=above)
            except OSError:  # another file is in it
                return


# -- a store of an older GOGH --------------------------------------------------------------------


def take_over(folder: Path, names: Collection[str], before: Collection[Path]) -> int:
    """Give the folder the files of our manifest that are still where they were before.

    They stay there too until `leave` removes them: the published snapshot may read them.
    """
    taken = 0
    for name in names:
        target = folder / name
        source = next((old / name for old in before if (old / name).is_file()), None)
        if target.exists() or source is None:
            continue
        files.make_folder(target.parent)
        part = target.with_suffix(".part")
        with files.whole_or_gone(part):
            files.remove(part)
            try:
                os.link(source, part)
            except OSError:  # not every file system has links
                files.copy(source, part)
            files.replace(part, target)
        taken += 1
    return taken


def leave(folder: Path, names: Collection[str], before: Path) -> None:
    """Remove from the folder of an older GOGH what our own has; the rest may be another's."""
    if before == folder or before.is_symlink() or not before.is_dir() or owner(before):
        return
    with opened(before) as handle:
        for name in names:
            if (before / name).is_file() and (folder / name).is_file():
                remove(handle, name)
    if not any(before.iterdir()):
        before.rmdir()
