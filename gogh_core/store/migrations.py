"""Migrations and views: brings a database to the shape this program expects, or refuses.

`check` compares what is recorded in the database with the files of `sql/migrations`; `apply` runs
what is missing and renews the views, all in the caller's transaction.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime

import duckdb

from gogh_core.errors import MigrationRefused, StoreCorrupt, StoreError
from gogh_core.store.faults import first_line, is_full
from gogh_core.store.texts import fetch, run, texts

__all__ = ["Migration", "apply_migrations", "check", "known", "views_checksum"]


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `sql/migrations`."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Of the text; a changed migration is found by it."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known() -> tuple[Migration, ...]:
    """The migrations of this program, in order."""
    found: dict[int, Migration] = {}
    for text in texts("migrations"):
        match = re.fullmatch(r"(\d{3})_[a-z0-9_]+", text.name)
        if match is None:
            raise MigrationRefused(f"{text.name}.sql is not called NNN_name.sql")
        number = int(match[1])
        if number in found:
            raise MigrationRefused(f"{text.name} and {found[number].name} have the same number")
        found[number] = Migration(number, text.name, text.sql)
    return tuple(found[number] for number in sorted(found))


def views_checksum() -> str:
    """Of all texts in `sql/views`; tells whether the views in a database are these."""
    joined = "\0".join(f"{text.name}\0{text.sql}" for text in texts("views"))
    return hashlib.sha256(joined.encode()).hexdigest()


def check(
    connection: duckdb.DuckDBPyConnection, where: str, migrations: tuple[Migration, ...]
) -> tuple[Migration, ...]:
    """The migrations that the database still lacks; raises where it cannot be ours as it is."""
    tables = set(fetch(connection, "store_tables")["table_name"].to_pylist())
    if "schema_migrations" not in tables:
        if tables:
            raise StoreCorrupt(
                f"is somebody else's database (it has a table {sorted(tables)[0]!r})",
                where=where,
                todo="set store.path to another file",
            )
        return migrations
    by_number = {migration.number: migration for migration in migrations}
    last = 0
    for row in fetch(connection, "store_applied").to_pylist():
        ours = by_number.pop(row["number"], None)
        if ours is None:
            raise MigrationRefused(
                f"has migration {row['name']}, which this program does not know",
                where=where,
                todo="it was written by a newer GOGH: use that one",
            )
        if ours.checksum != row["checksum"]:
            raise MigrationRefused(
                f"migration {ours.name} was changed after it had been applied",
                where=where,
                todo="restore its text and put the change into a new migration",
            )
        last = ours.number
    late = [migration for number, migration in by_number.items() if number < last]
    if late:
        raise MigrationRefused(
            f"migration {late[0].name} is missing, but later ones were applied",
            where=where,
            todo="give it a number after the last one",
        )
    return tuple(by_number[number] for number in sorted(by_number))


def apply_migrations(
    connection: duckdb.DuckDBPyConnection, missing: tuple[Migration, ...], now: datetime
) -> None:
    """Run the missing migrations; the caller's transaction makes it all or nothing."""
    fetch(connection, "store_begin_schema")
    for migration in missing:
        try:
            run(connection, migration.sql, {})
        except duckdb.Error as error:
            if is_full(error):
                raise
            raise StoreError(
                f"failed: {first_line(error)}", where=f"sql/migrations/{migration.name}"
            ) from error
        fetch(
            connection,
            "store_record_migration",
            number=migration.number,
            name=migration.name,
            checksum=migration.checksum,
            applied_at=now,
        )
