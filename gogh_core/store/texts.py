"""SQL texts: found in the `sql` package (so in a wheel too), split into statements, run by name.

`statement` and `fetch` serve the steps of all rooms (`sql/steps/<name>.sql`); migrations, views
and queries are listed for the modules of this room.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import chain, count
from typing import Any

import duckdb
import pyarrow as pa

from gogh_core.errors import InvalidInput

__all__ = [
    "Text",
    "distinct",
    "fetch",
    "fetch_rows",
    "fill",
    "run",
    "statement",
    "texts",
    "transaction",
]

# What DuckDB says when a signal came while it worked.
_INTERRUPTED = "Query interrupted"


@dataclass(frozen=True, slots=True)
class Text:
    """One SQL file: its folder, its name without the ending, and what it says."""

    folder: str
    name: str
    sql: str


@cache
def texts(folder: str) -> tuple[Text, ...]:
    """Every SQL file of `sql/<folder>`, in the order of their names."""
    root = resources.files("sql").joinpath(folder)
    names = sorted(entry.name for entry in root.iterdir() if entry.name.endswith(".sql"))
    return tuple(
        Text(folder, name.removesuffix(".sql"), root.joinpath(name).read_text(encoding="utf-8"))
        for name in names
    )


def statement(name: str) -> str:
    """The text of `sql/steps/<name>.sql`."""
    for text in texts("steps"):
        if text.name == name:
            return text.sql
    raise InvalidInput(f"there is no step {name!r}", where="sql/steps")


def fetch(connection: duckdb.DuckDBPyConnection, name: str, /, **parameters: Any) -> pa.Table:
    """Run every statement of `sql/steps/<name>.sql`; what the last one gives, as Arrow.

    `$name` in the text is bound to the parameter of that name. A last statement that gives no rows
    (INSERT, CREATE) gives an Arrow table without rows.
    """
    return run(connection, statement(name), parameters)


def fetch_rows(
    connection: duckdb.DuckDBPyConnection, name: str, /, **parameters: Any
) -> list[dict[str, Any]]:
    """What `fetch` gives, as one dictionary for each row.

    Times are made here: Arrow's own way imports pandas, which is most of the time of a command
    that only shows something.
    """
    table = fetch(connection, name, **parameters)
    columns = [_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _values(column: pa.ChunkedArray) -> list[Any]:
    if not (pa.types.is_timestamp(column.type) and column.type.tz):
        return list(column.to_pylist())
    counts = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return [None if us is None else _EPOCH + timedelta(microseconds=us) for us in counts]


def run(connection: duckdb.DuckDBPyConnection, sql: str, parameters: dict[str, Any]) -> pa.Table:
    """Run every statement of a text with the parameters it names; the last result as Arrow."""
    result = pa.table({})
    for part in duckdb.extract_statements(sql):
        wanted = part.named_parameters
        bound = {key: value for key, value in parameters.items() if key in wanted}
        missing = sorted(set(wanted) - set(bound))
        if missing:
            raise InvalidInput(f"parameter {missing[0]} is not given", where=part.query[:60])
        with _interruptible():
            relation = connection.sql(part.query, params=bound or None)
            result = pa.table({}) if relation is None else relation.to_arrow_table()
    return result.rename_columns(distinct(result.column_names))


def distinct(names: Sequence[str]) -> list[str]:
    """Column names as DuckDB makes them distinct in a subquery: a, a, b become a, a_1, b."""
    found: dict[str, str] = {}
    for name in names:
        tries = chain([name], (f"{name}_{number}" for number in count(1)))
        free = next(made for made in tries if made.casefold() not in found)
        found[free.casefold()] = free
    return list(found.values())


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C within a query is a KeyboardInterrupt, as everywhere; DuckDB says RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        if str(error) == _INTERRUPTED:
            raise KeyboardInterrupt from error
        raise


def fill(sql: str, **identifiers: str) -> str:
    """The text with `{name}` replaced by a quoted identifier (values are bound, never filled)."""
    for name, identifier in identifiers.items():
        if not re.fullmatch(r"[a-z_][a-z0-9_]*", identifier):
            raise InvalidInput(f"{identifier!r} is no name of a table or column")
        sql = sql.replace("{" + name + "}", f'"{identifier}"')
    return sql


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Commits at the end of the block, or rolls back when it raises."""
    connection.begin()
    try:
        yield
    except BaseException:
        # The transaction may be gone already; what broke it is what the caller has to see.
        with suppress(duckdb.Error):
            connection.rollback()
        raise
    connection.commit()
