"""`gogh sql`, `gogh query`, `gogh snapshot`, `gogh backup`, `gogh restore`.

People read the published snapshot, which cannot be written and opens no other file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gogh_core import settings as all_settings
from gogh_core.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

    from gogh_core.store import Store

__all__ = ["register"]

_AsJson = Annotated[bool, typer.Option("--json", help="As JSON, one object for each row.")]
_AsCsv = Annotated[bool, typer.Option("--csv", help="As CSV.")]
_Parquet = Annotated[Path | None, typer.Option("--parquet", help="Into a Parquet file.")]
_Rows = Annotated[int, typer.Option("--rows", min=1, help="Rows the table shows at most.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("sql")(sql)
    app.command("query")(query)
    app.command("snapshot")(snapshot)
    app.command("backup")(backup)
    app.command("restore")(restore)


def sql(
    text: Annotated[str | None, typer.Argument(help="One SELECT; standard input if none.")] = None,
    as_json: _AsJson = False,
    as_csv: _AsCsv = False,
    parquet: _Parquet = None,
    rows: _Rows = 40,
) -> None:
    """Ask the newest snapshot in SQL; it can only be read."""
    from gogh_core.store import ask

    if text is None and sys.stdin.isatty():
        raise InvalidInput("no query", todo="`gogh sql 'SHOW TABLES'` is a beginning")
    asked = sys.stdin.read() if text is None else text
    _give(ask(_store(), asked), as_json, as_csv, parquet, rows)


def query(
    name: Annotated[str | None, typer.Argument(help="Its name; all are listed if none.")] = None,
    *,
    given: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="A parameter, as name=value.")
    ] = None,
    as_json: _AsJson = False,
    as_csv: _AsCsv = False,
    parquet: _Parquet = None,
    rows: _Rows = 40,
) -> None:
    """Run one of the named queries on the newest snapshot, or list them."""
    import pyarrow as pa

    from gogh_core.store import queries, run_query

    if name is None:
        listed = [
            {
                "name": known.name,
                "about": known.about,
                "parameters": ", ".join(f"{p.name}={p.default}" for p in known.parameters),
            }
            for known in queries()
        ]
        _give(pa.Table.from_pylist(listed), as_json, as_csv, parquet, 1000)
        return
    parameters: dict[str, str] = {}
    for entry in given or []:
        key, equals, value = entry.partition("=")
        if not equals:
            raise InvalidInput(f"{entry!r} is not name=value", where="--set")
        parameters[key.strip()] = value.strip()
    _give(run_query(_store(), name, **parameters), as_json, as_csv, parquet, rows)


def snapshot(as_json: _AsJson = False) -> None:
    """Publish what is stored now, for people to read."""
    _say({"snapshot": str(_store().publish())}, as_json)


def backup(
    to: Annotated[Path, typer.Argument(help="A folder that does not exist yet.")],
    as_json: _AsJson = False,
) -> None:
    """Write database and samples to a folder, with checksums."""
    _say({"backup": str(_store().backup(to.absolute()))}, as_json)


def restore(
    source: Annotated[Path, typer.Argument(help="A folder that `gogh backup` wrote.")],
    yes: Annotated[bool, typer.Option("--yes", help="Replace what is stored now.")] = False,
    as_json: _AsJson = False,
) -> None:
    """Verify a backup and put it in the place of what is stored now."""
    store = _store()
    if store.path.exists() and not yes:
        raise InvalidInput("holds data", where=str(store.path), todo="--yes replaces it")
    store.restore(source.absolute())
    _say({"restored": str(store.path)}, as_json)


def _store() -> Store:
    from gogh_core.store import Store

    return Store(all_settings.load())


def _say(facts: dict[str, str], as_json: bool) -> None:
    import json

    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name}: {value}")


def _give(answer: pa.Table, as_json: bool, as_csv: bool, parquet: Path | None, rows: int) -> None:
    if sum((as_json, as_csv, parquet is not None)) > 1:
        raise InvalidInput("--json, --csv and --parquet exclude each other")
    if parquet is not None:
        _write_parquet(answer, parquet)
    elif as_json:
        import json

        typer.echo(json.dumps(answer.to_pylist(), default=_plain, indent=1, ensure_ascii=False))
    elif as_csv:
        _write_csv(answer)
    else:
        _show(answer, rows)


def _write_parquet(answer: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    try:
        pq.write_table(answer, path)
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error}", where=str(path)) from error
    typer.echo(f"{answer.num_rows} rows in {path}")


def _write_csv(answer: pa.Table) -> None:
    import csv

    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(answer.column_names)
    for batch in answer.to_batches():
        for row in batch.to_pylist():
            out.writerow("" if value is None else _plain(value) for value in row.values())


def _show(answer: pa.Table, rows: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for field in answer.schema:
        number = str(field.type).startswith(("int", "uint", "double", "float", "decimal"))
        table.add_column(Text(field.name), justify="right" if number else "left")
    for row in answer.slice(0, rows).to_pylist():
        # As Text, so that nothing that comes out of the data is taken for markup.
        table.add_row(*(Text("" if v is None else str(_plain(v))) for v in row.values()))
    # A pipe gets whole lines; a terminal folds.
    console = Console(width=None if sys.stdout.isatty() else 400)
    console.print(table)
    left = answer.num_rows - rows
    if left > 0:
        typer.echo(f"... and {left} rows more (--rows, --csv or --parquet show all)")


def _plain(value: Any) -> Any:
    """A value as text and JSON show it; times in UTC, to the second where that says all."""
    from datetime import date, datetime

    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | dict):
        import json

        return json.dumps(value, default=str)
    return str(value)
