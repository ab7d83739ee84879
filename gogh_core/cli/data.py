"""`gogh sql`, `gogh query`, `gogh snapshot`, `gogh backup`, `gogh restore`.

People read the published snapshot, which cannot be written and opens no other file, within the
limits of the settings (`sql.*`). A table shows the beginning of an answer that is too long; for
files and pipes such an answer is refused, so that nobody takes a part for the whole.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gogh_core import settings as all_settings
from gogh_core.errors import InvalidInput, ResultTooLarge

if TYPE_CHECKING:
    import pyarrow as pa

    from gogh_core.store import Store

__all__ = ["register"]

_AsJson = Annotated[bool, typer.Option("--json", help="As JSON, one object for each row.")]
_AsCsv = Annotated[bool, typer.Option("--csv", help="As CSV.")]
_Spreadsheet = Annotated[
    bool,
    typer.Option("--spreadsheet", help="As CSV; cells that begin a formula get a ' in front."),
]
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
    spreadsheet: _Spreadsheet = False,
    parquet: _Parquet = None,
    rows: _Rows = 40,
) -> None:
    """Ask the newest snapshot in SQL; it can only be read."""
    from gogh_core.store import ask

    if text is None and sys.stdin.isatty():
        raise InvalidInput("no query", todo="`gogh sql 'SHOW TABLES'` is a beginning")
    asked = sys.stdin.read() if text is None else text
    out = _Out.chosen(as_json, as_csv, spreadsheet, parquet)
    store = _store()
    _give(lambda: ask(store, asked), store, out, rows)


def query(
    name: Annotated[str | None, typer.Argument(help="Its name; all are listed if none.")] = None,
    *,
    given: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="A parameter, as name=value.")
    ] = None,
    as_json: _AsJson = False,
    as_csv: _AsCsv = False,
    spreadsheet: _Spreadsheet = False,
    parquet: _Parquet = None,
    rows: _Rows = 40,
) -> None:
    """Run one of the named queries on the newest snapshot, or list them."""
    import pyarrow as pa

    from gogh_core.store import queries, run_query

    out = _Out.chosen(as_json, as_csv, spreadsheet, parquet)
    if name is None:
        listed = [
            {
                "name": known.name,
                "about": known.about,
                "parameters": ", ".join(f"{p.name}={p.default}" for p in known.parameters),
            }
            for known in queries()
        ]
        _put(pa.Table.from_pylist(listed), out, 1000)
        return
    parameters: dict[str, str] = {}
    for entry in given or []:
        key, equals, value = entry.partition("=")
        if not equals:
            raise InvalidInput(f"{entry!r} is not name=value", where="--set")
        parameters[key.strip()] = value.strip()
    store = _store()
    _give(lambda: run_query(store, str(name), **parameters), store, out, rows)


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


@dataclass(frozen=True)
class _Out:
    """Where an answer goes: a table on the screen unless one of these is chosen."""

    as_json: bool
    as_csv: bool
    spreadsheet: bool
    parquet: Path | None

    @classmethod
    def chosen(cls, as_json: bool, as_csv: bool, spreadsheet: bool, parquet: Path | None) -> _Out:
        """What the options say; more than one way is refused before anything is asked."""
        if sum((as_json, as_csv or spreadsheet, parquet is not None)) > 1:
            raise InvalidInput("--json, --csv (--spreadsheet) and --parquet exclude each other")
        return cls(as_json, as_csv or spreadsheet, spreadsheet, parquet)

    @property
    def whole(self) -> bool:
        """Whether a part would be taken for the whole."""
        return self.as_json or self.as_csv or self.parquet is not None


def _give(asked: Callable[[], pa.Table], store: Store, out: _Out, rows: int) -> None:
    """Ask within the limits and show the answer."""
    from gogh_core.store import bounded_process

    try:
        with bounded_process(store.settings.sql):
            answer = asked()
    except ResultTooLarge as error:
        if out.whole:
            raise
        _show(error.part.slice(0, rows), rows)
        typer.echo(f"... and so on: {error}")
        return
    _put(answer, out, rows)


def _put(answer: pa.Table, out: _Out, rows: int) -> None:
    if out.parquet is not None:
        _write_parquet(answer, out.parquet)
    elif out.as_json:
        _write_json(answer)
    elif out.as_csv:
        _write_csv(answer, formulas=not out.spreadsheet)
    else:
        _show(answer, rows)


def _write_json(answer: pa.Table) -> None:
    """Row by row: a long answer is never in memory twice."""
    import json
    from textwrap import indent

    before = "["
    for batch in answer.to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            text = json.dumps(row, default=_plain, indent=1, ensure_ascii=False)
            typer.echo(f"{before}\n{indent(text, ' ')}", nl=False)
            before = ","
    typer.echo("[]" if before == "[" else "\n]")


def _write_parquet(answer: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    try:
        pq.write_table(answer, path)
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error}", where=str(path)) from error
    typer.echo(f"{answer.num_rows} rows in {path}")


def _write_csv(answer: pa.Table, *, formulas: bool) -> None:
    import csv

    cell = _plain if formulas else _no_formula
    out = csv.writer(
        sys.stdout,
        lineterminator="\n",
        quoting=csv.QUOTE_MINIMAL if formulas else csv.QUOTE_NONNUMERIC,
    )
    out.writerow(cell(name) for name in answer.column_names)
    for batch in answer.to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            out.writerow("" if value is None else cell(value) for value in row.values())


# What spreadsheets take for the beginning of a formula, also after blanks and in full width.
_FORMULA = ("=", "+", "-", "@", "|", "%", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def _no_formula(value: Any) -> Any:
    """A cell that a spreadsheet shows as it is; numbers stay numbers."""
    shown = _plain(value)
    if not isinstance(shown, str):
        return shown
    risky = shown.startswith(_FORMULA) or shown.lstrip().startswith(_FORMULA)
    return f"'{shown}" if risky else shown


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
