"""Backups: a folder with a consistent copy of the database, its samples, and a list of checksums.

A restore verifies the whole folder first: its list may name nothing but a database and samples,
and no link. Each file is verified once more when it was copied. Then the samples are put beside
those that are there (their names are never used twice), and the database is replaced in one step:
that is the moment the restore happens. What the replaced database named is removed by the next
ageing.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gogh_core import __version__
from gogh_core.errors import InvalidInput, StoreCorrupt
from gogh_core.store import (
    ageing,
    commits,
    files,
    migrations,
    publishing,
    samples,
    views,
)
from gogh_core.store.texts import fetch, run, statement, transaction

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
    with files.whole_or_gone(staged):
        staged.mkdir(parents=True)
        _fill(store, staged)
        files.replace(staged, to)
    return to


def _fill(store: Store, staged: Path) -> None:
    database = staged / _DATABASE
    with ageing.only_one(store):
        publishing.copy_database(store, database)
        files.sync(database)
        names = _live(store, database)
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


def restore(store: Store, source: Path) -> None:
    """Verify a backup, then put it in the place of this store."""
    listed = _verify(source)
    files.make_folder(store.path.parent)
    staged = store.path.with_name(store.path.name + ".restore")
    _remove_database(staged)
    with files.whole_or_gone(staged):
        files.copy(source / _DATABASE, staged)
        _must_be(staged, listed[_DATABASE], source / _DATABASE)
        _put_in_place(store, staged, source, listed)
    store.publish()


def _put_in_place(store: Store, staged: Path, source: Path, listed: dict[str, str]) -> None:
    with store.connect(staged, read_only=True) as connection:
        missing = migrations.check(connection, str(source / _DATABASE), migrations.known())
        named = fetch(connection, "store_file_names")["file"].to_pylist()
    samples.checked(named, source / _DATABASE)
    names = _live(store, staged)
    absent = [name for name in names if f"samples/{name}" not in listed]
    if absent:
        raise StoreCorrupt(f"lacks samples/{absent[0]}", where=str(source), todo=_ANOTHER)
    with ageing.only_one(store):
        store_id = _own_folder(store, names)
        for name in names:
            _put(source / "samples" / name, store, name, listed[f"samples/{name}"])
        with store.connect(staged) as connection:
            # Whatever a backup holds reads no other file and writes none.
            bounds = {"samples": str(store.samples), "spill": "", "spill_limit": "0MB"}
            run(connection, statement("store_lock_down"), bounds)
            with transaction(connection):
                migrations.apply_migrations(connection, missing, files.now_utc())
                views.renew(connection, store.samples)
                fetch(connection, "store_become", store_id=store_id)
            fetch(connection, "store_checkpoint")
        files.sync(staged)
        with store.gate():
            _settle_log(store)
            files.remove(commits.file_of(store.path))
            files.replace(staged, store.path)


def _own_folder(store: Store, names: list[str]) -> str:
    """The id of the database that the folder of samples belongs to, which is the restored one's."""
    found = samples.owner(store.samples)
    store_id = found[1] if found else uuid.uuid4().hex
    samples.claim(store.samples, store.path, store_id, names)
    return store_id


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
    listed = raw.get("files")
    if not isinstance(listed, dict) or _DATABASE not in listed:
        raise StoreCorrupt(f"{_LIST} lists no {_DATABASE}", where=str(source), todo=_ANOTHER)
    top = source.resolve()
    for name, checksum in listed.items():
        if name != _DATABASE:
            samples.checked([name.removeprefix("samples/")], source / _LIST)
        if not isinstance(checksum, str) or not re.fullmatch("[0-9a-f]{64}", checksum):
            raise StoreCorrupt(f"{name} has no checksum", where=str(source), todo=_ANOTHER)
        if (source / name).resolve() != top / name:
            raise StoreCorrupt(f"{name} is a link", where=str(source), todo=_ANOTHER)
        _must_be(source / name, checksum, source / name)
    return listed


def _must_be(path: Path, checksum: str, named: Path) -> None:
    if not path.is_file() or files.checksum(path) != checksum:
        raise StoreCorrupt("is missing or damaged", where=str(named), todo=_ANOTHER)


def _live(store: Store, database: Path) -> list[str]:
    """The files of samples that count in a database."""
    with store.connect(database, read_only=True) as connection:
        found = [
            name
            for table in views.AGED
            for name in fetch(connection, "store_live_files", table=table)["file"].to_pylist()
        ]
    return samples.checked(found, database)


def _put(source: Path, store: Store, name: str, checksum: str) -> None:
    target = store.samples / name
    if target.is_file() and files.checksum(target) == checksum:
        return
    samples.make_place(store.samples, name)
    part = target.with_suffix(".part")
    files.remove(part)
    with files.whole_or_gone(part):
        files.copy(source, part)
        _must_be(part, checksum, source)
        files.replace(part, target)


def _settle_log(store: Store) -> None:
    """No log of the old database may be taken for one of the new; a good one is written out."""
    try:
        publishing.checkpoint(store)
    except StoreCorrupt:
        # The old database is beyond opening, which may be why it is being replaced.
        files.remove(store.path.with_name(store.path.name + ".wal"))


def _remove_database(path: Path) -> None:
    files.remove(path)
    files.remove(path.with_name(path.name + ".wal"))
