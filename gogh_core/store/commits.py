"""The count of commits, kept in the database and in a file beside it.

DuckDB drops what it cannot read at the end of its log without a word. So each transaction counts
itself in the database, and when it is committed the count is written to `<database>.commits`. A
database with fewer commits than that file tells has lost some: it is refused until a person has
restored a backup, or has removed the file to go on without them.
"""

from __future__ import annotations

import os
from pathlib import Path

import duckdb

from gogh_core.errors import StoreCorrupt, StoreError
from gogh_core.store.texts import fetch

__all__ = ["check", "count", "file_of", "identity", "prepare", "tell", "told"]

# The file has one size from the beginning, so that telling needs no room on a full disk.
_BYTES = 64


def file_of(database: Path) -> Path:
    """The file beside a database."""
    return database.with_name(database.name + ".commits")


def prepare(database: Path) -> None:
    """Make sure that the file is there, as long as it ever gets."""
    path = file_of(database)
    if not path.exists() or path.stat().st_size < _BYTES:
        path.write_bytes(b" " * _BYTES)
        path.chmod(0o600)


def count(connection: duckdb.DuckDBPyConnection) -> tuple[str, int]:
    """Count the transaction that is about to be committed: whose it is, and the number."""
    try:
        row = fetch(connection, "store_count_commit").to_pylist()[0]
    except duckdb.CatalogException as error:
        raise StoreError(
            "the database is of an older GOGH", todo="`gogh up` or a cycle renews it"
        ) from error
    return row["store_id"], row["commits"]


def tell(database: Path, store_id: str, number: int) -> None:
    """Write the number of the last commit to disk."""
    handle = os.open(file_of(database), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(handle, f"{store_id} {number}\n".ljust(_BYTES).encode(), 0)
        os.fdatasync(handle)
    finally:
        os.close(handle)


def identity(connection: duckdb.DuckDBPyConnection) -> str:
    """The id of a database; none where it is of an older GOGH."""
    try:
        return str(fetch(connection, "store_identity")["store_id"][0].as_py())
    except (duckdb.CatalogException, IndexError):
        return ""


def told(database: Path) -> tuple[str, int] | None:
    """Whose commits were told beside a database, and how many; none where nothing was."""
    path = file_of(database)
    try:
        words = path.read_text(encoding="ascii", errors="replace").split()
    except FileNotFoundError:
        return None
    if not words:  # prepared, and its writer was killed before it committed
        return None
    try:
        return words[0], int(words[1])
    except (IndexError, ValueError):
        raise StoreCorrupt("is damaged", where=str(path), todo=_todo(path)) from None


def check(
    connection: duckdb.DuckDBPyConnection, database: Path, said: tuple[str, int] | None
) -> None:
    """Raise where the database, or this copy of it, has fewer commits than were told."""
    if said is None:
        return
    try:
        row = fetch(connection, "store_identity").to_pylist()[0]
    except (duckdb.CatalogException, IndexError):  # a database of an older GOGH was put there
        return
    lost = said[1] - row["commits"]
    if row["store_id"] == said[0] and lost > 0:
        raise StoreCorrupt(
            f"{lost} of its {said[1]} commits {'is' if lost == 1 else 'are'} missing: "
            "its log was cut or damaged, or an older copy was put in its place",
            where=str(database),
            todo=_todo(file_of(database)),
        )


def _todo(path: Path) -> str:
    return f"restore a backup (`gogh restore`), or remove {path} to go on with what is there"
