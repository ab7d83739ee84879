"""Backups: a folder with a consistent copy of the database, its samples, and a list of checksums.

A restore verifies the whole folder first. Then the samples are put beside those that are there
(their names are never used twice), and the database is replaced in one step: that is the moment
the restore happens. What the replaced database named is removed by the next ageing.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gogh_core import __version__
from gogh_core.errors import InvalidInput, StoreCorrupt, StoreError
from gogh_core.store import ageing, files, migrations, publishing, views
from gogh_core.store.texts import fetch, transaction

if TYPE_CHECKING:
    from gogh_core.store.database import Store

__all__ = ["backup", "restore"]

_LIST = "backup.json"
_DATABASE = "gogh.duckdb"
_SCHEMA = "gogh.backup/1"


def backup(store: Store, to: Path) -> Path:
    """Write a backup to a folder that does not exist yet; it appears when it is complete."""
    if to.exists():
        raise InvalidInput("exists already", where=str(to), todo="name a folder that does not")
    staged = to.with_name(to.name + ".part")
    if staged.exists():
        shutil.rmtree(staged)
    staged.mkdir(parents=True)
    with ageing.only_one(store):
        database = staged / _DATABASE
        publishing.copy_database(store, database)
        files.sync(database)
        names = [row["file"] for row in _live(store, database)]
        for name in names:
            target = staged / "samples" / name
            files.make_folder(target.parent)
            files.copy(store.samples / name, target)
    listed = {_DATABASE: files.checksum(database)}
    for name in names:
        listed[f"samples/{name}"] = files.checksum(staged / "samples" / name)
    at = files.now_utc().isoformat()
    raw = {"schema": _SCHEMA, "gogh": __version__, "at": at, "files": listed}
    (staged / _LIST).write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    files.sync(staged / _LIST)
    files.replace(staged, to)
    return to


def restore(store: Store, source: Path) -> None:
    """Verify a backup, then put it in the place of this store."""
    listed = _verify(source)
    files.make_folder(store.path.parent)
    staged = store.path.with_name(store.path.name + ".restore")
    _remove_database(staged)
    files.copy(source / _DATABASE, staged)
    with store.connect(staged, read_only=True) as connection:
        missing = migrations.check(connection, str(source / _DATABASE), migrations.known())
    names = sorted(row["file"] for row in _live(store, staged))
    absent = [name for name in names if f"samples/{name}" not in listed]
    if absent:
        raise StoreCorrupt(f"lacks samples/{absent[0]}", where=str(source), todo=_ANOTHER)
    with ageing.only_one(store):
        for name in names:
            _put(source / "samples" / name, store.samples / name, listed[f"samples/{name}"])
        with store.connect(staged) as connection, transaction(connection):
            migrations.apply_migrations(connection, missing, files.now_utc())
            views.renew(connection, store.samples)
        files.sync(staged)
        with store.gate():
            _settle_log(store)
            files.replace(staged, store.path)
    store.publish()


_ANOTHER = "use another backup"


def _verify(source: Path) -> dict[str, str]:
    try:
        raw: dict[str, Any] = json.loads((source / _LIST).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(
            f"is no backup ({_LIST}: {error.strerror})", where=str(source)
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"{_LIST} is damaged", where=str(source), todo=_ANOTHER) from error
    if not isinstance(raw, dict) or raw.get("schema") != _SCHEMA:
        raise InvalidInput(f"{_LIST} is not of schema {_SCHEMA}", where=str(source))
    listed: dict[str, str] = raw["files"]
    for name, checksum in listed.items():
        path = source / name
        if not path.resolve().is_relative_to(source.resolve()):
            raise StoreCorrupt(f"names a file outside: {name}", where=str(source))
        if not path.is_file() or files.checksum(path) != checksum:
            raise StoreCorrupt(f"{name} is missing or damaged", where=str(source), todo=_ANOTHER)
    if _DATABASE not in listed:
        raise StoreCorrupt(f"has no {_DATABASE}", where=str(source), todo=_ANOTHER)
    return listed


def _live(store: Store, database: Path) -> list[dict[str, Any]]:
    with store.connect(database, read_only=True) as connection:
        rows: list[dict[str, Any]] = fetch(connection, "store_manifest").to_pylist()
    return [row for row in rows if row["retired_at"] is None]


def _put(source: Path, target: Path, checksum: str) -> None:
    if target.is_file() and files.checksum(target) == checksum:
        return
    files.make_folder(target.parent)
    part = target.with_suffix(".part")
    files.remove(part)
    files.copy(source, part)
    files.replace(part, target)


def _settle_log(store: Store) -> None:
    """No log of the old database may be taken for one of the new; a good one is written out."""
    try:
        publishing.checkpoint(store)
    except StoreError:
        # The old database is beyond opening, which may be why it is being replaced.
        files.remove(store.path.with_name(store.path.name + ".wal"))


def _remove_database(path: Path) -> None:
    files.remove(path)
    files.remove(path.with_name(path.name + ".wal"))
