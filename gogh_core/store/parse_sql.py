"""`python -m gogh_core.store.parse_sql`: every SQL file parses, and fits the tables and views.

A fresh database is migrated; views are made, queries and steps are planned (EXPLAIN) against it.
Steps that name what only exists while a program runs (registered Arrow rows, names to be filled
in) are parsed only.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import duckdb

from gogh_core.errors import GoghError
from gogh_core.settings import Settings
from gogh_core.store.database import Store
from gogh_core.store.texts import Text, texts

__all__ = ["faults", "main"]

_PLANNED = (
    duckdb.StatementType.SELECT,
    duckdb.StatementType.INSERT,
    duckdb.StatementType.UPDATE,
    duckdb.StatementType.DELETE,
)
# A step made for rows that a program registers says so with this word in its first comment.
_PARSED_ONLY = "registered"
_HINT = "a step that reads registered rows says so in its first comment"


def faults() -> list[str]:
    """Everything wrong with the SQL files, one line each."""
    found: list[str] = []
    with tempfile.TemporaryDirectory(prefix="gogh-sql-") as folder:
        store = Store(Settings(home=Path(folder)))
        try:
            store.migrate()
        except GoghError as error:
            return [str(error)]
        with store.gate(), store.connect() as connection:
            for kind in ("queries", "steps"):
                for text in texts(kind):
                    found += _faults_of(connection, text)
    return found


def _faults_of(connection: duckdb.DuckDBPyConnection, text: Text) -> list[str]:
    where = f"sql/{text.folder}/{text.name}.sql"
    filled = text.sql.replace("[{files}]", "['x']").replace("{parquet}", "")
    for name in ("{table}", "{view}"):
        filled = filled.replace(name, "gpu_samples")
    try:
        parts = duckdb.extract_statements(filled)
    except duckdb.Error as error:
        return [f"{where}: {error}"]
    head = text.sql.split("\n\n")[0].split("SELECT")[0]
    if "{" in text.sql or _PARSED_ONLY in head or "store_rows" in text.sql:
        return []
    found = []
    for part in parts:
        try:
            if part.type in _PLANNED:
                _plan(connection, part)
            elif part.type == duckdb.StatementType.CREATE:
                # Later statements of the text may read what it makes.
                connection.execute(part.query, dict.fromkeys(part.named_parameters) or None)
        except duckdb.Error as error:
            found.append(f"{where}: {str(error).strip()} ({_HINT})")
    return found


def _plan(connection: duckdb.DuckDBPyConnection, part: duckdb.Statement) -> None:
    parameters = dict.fromkeys(part.named_parameters)
    connection.execute(f"EXPLAIN {part.query}", parameters or None)


def main() -> int:
    """Print the faults; 1 where there are any."""
    found = faults()
    for fault in found:
        print(fault, file=sys.stderr)
    count = sum(len(texts(kind)) for kind in ("migrations", "views", "queries", "steps"))
    if not found:
        print(f"{count} SQL files parse")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
