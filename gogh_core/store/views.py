"""The views: samples of database and Parquet as one, then `sql/views` in two layers.

`gpu_samples_all` and `job_progress_all` are made here because the Parquet files they read change;
they are renewed in the same transaction as the manifest that says which files count.
"""

from __future__ import annotations

import re
from pathlib import Path

import duckdb

from gogh_core.errors import StoreError
from gogh_core.store.faults import first_line, is_full
from gogh_core.store.migrations import views_checksum
from gogh_core.store.samples import checked
from gogh_core.store.texts import Text, fetch, fill, run, statement, texts

__all__ = ["AGED", "are_current", "folder", "ordered", "renew", "renew_samples"]

# Tables whose old rows move to Parquet.
AGED = ("gpu_samples", "job_progress")


def are_current(connection: duckdb.DuckDBPyConnection, samples: Path) -> bool:
    """Whether the views in the database are those of this program and this folder."""
    found = fetch(connection, "store_fact", name="views")["value"].to_pylist()
    return bool(found == [_fact(samples)])


def folder(connection: duckdb.DuckDBPyConnection) -> Path | None:
    """The folder of samples that the views in the database read."""
    found = fetch(connection, "store_fact", name="views")["value"].to_pylist()
    return Path(found[0].split(" ", 1)[1]) if found and " " in found[0] else None


def renew(connection: duckdb.DuckDBPyConnection, samples: Path) -> None:
    """Drop every view and make it anew, in the caller's transaction."""
    for name in fetch(connection, "store_views")["view_name"].to_pylist():
        connection.execute(fill(statement("store_drop_view"), view=name))
    for table in AGED:
        renew_samples(connection, table, samples)
    for view in ordered(texts("views")):
        try:
            run(connection, view.sql, {})
        except duckdb.Error as error:
            if is_full(error):
                raise
            text = f"failed: {first_line(error)}"
            raise StoreError(text, where=f"sql/views/{view.name}.sql") from error
    fetch(connection, "store_set_fact", name="views", value=_fact(samples))


def renew_samples(connection: duckdb.DuckDBPyConnection, table: str, samples: Path) -> None:
    """The view of one table that joins its hot rows and the Parquet files that count."""
    by_columns: dict[str, list[str]] = {}
    for row in fetch(connection, "store_live_files", table=table).to_pylist():
        checked([row["file"]], samples)
        by_columns.setdefault(row["columns"], []).append(_quoted(samples / row["file"]))
    part = "UNION ALL BY NAME\n" + statement("store_samples_part")
    parquet = " ".join(part.replace("{files}", ", ".join(some)) for some in by_columns.values())
    sql = fill(statement("store_samples_view"), view=f"{table}_all", table=table)
    connection.execute(sql.replace("{parquet}", parquet))


def ordered(views: tuple[Text, ...]) -> list[Text]:
    """Each view after those it reads from."""
    names = {view.name: view for view in views}
    done: dict[str, Text] = {}

    def visit(view: Text, above: tuple[str, ...]) -> None:
        if view.name in above:
            raise StoreError("reads from itself", where=f"sql/views/{view.name}.sql")
        for word in dict.fromkeys(re.findall(r"\b\w+\b", re.sub(r"--[^\n]*", "", view.sql))):
            if word in names and word != view.name and word not in done:
                visit(names[word], (*above, view.name))
        done[view.name] = view

    for view in views:
        visit(view, ())
    return list(done.values())


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _fact(samples: Path) -> str:
    return f"{views_checksum()} {samples}"
