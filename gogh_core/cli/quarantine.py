"""`gogh quarantine list | show | readmit | drop`: rows that broke their contract."""

from __future__ import annotations

from typing import Annotated

import typer

from gogh_core import settings as all_settings
from gogh_core.cli.common import AsJson, cluster_time, echo_json, open_store
from gogh_core.errors import InvalidInput

__all__ = ["register"]

_Ids = Annotated[
    list[str] | None, typer.Argument(help="Ids, or how they begin (6 letters or more).")
]
_Source = Annotated[str | None, typer.Option(help="Everything held of one source (a file).")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    quarantine = typer.Typer(
        help="Rows that broke their contract: list, show, readmit, drop.",
        no_args_is_help=True,
        add_completion=False,
    )
    quarantine.command("list")(list_rows)
    quarantine.command("show")(show_row)
    quarantine.command("readmit")(readmit_rows)
    quarantine.command("drop")(drop_rows)
    app.add_typer(quarantine, name="quarantine")


def list_rows(
    table: Annotated[str | None, typer.Option(help="Of one table only.")] = None,
    source: Annotated[str | None, typer.Option(help="Of one source (a file) only.")] = None,
    batch: Annotated[str | None, typer.Option(help="Of one batch only.")] = None,
    status: Annotated[str, typer.Option(help="held, readmitted, dropped or all.")] = "held",
    limit: Annotated[int, typer.Option(min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """What broke its contract, with the expectation, the value, the source and the line."""
    from gogh_core.store import Store
    from gogh_core.telemetry import held

    if status not in ("held", "readmitted", "dropped", "all"):
        raise InvalidInput(f"{status!r} is no status", todo="held, readmitted, dropped or all")
    store = Store(all_settings.load())
    rows = held(store, table=table, source=source, batch=batch, status=status, limit=limit)
    if as_json:
        echo_json(rows)
        return
    for row in rows:
        value = "" if row["value"] is None else f" = {row['value']}"
        typer.echo(
            f"{row['quarantine_id'][:10]} {row['table_name']} {row['source']}:{row['line']} "
            f"{row['column_name'] or ''}{value}: {row['reason']}"
        )
    total = rows[0]["total"] if rows else 0
    typer.echo(f"{len(rows)} of {total} rows", err=True)


def show_row(
    quarantine_id: Annotated[str, typer.Argument(help="Its id, or how it begins.")],
    as_json: AsJson = False,
) -> None:
    """Everything known of one row."""
    from gogh_core.store import Store
    from gogh_core.telemetry import show

    row = show(Store(all_settings.load()), quarantine_id)
    if as_json:
        echo_json(row)
        return
    for name, value in row.items():
        typer.echo(f"{name:15} {value}")


def readmit_rows(
    ids: _Ids = None,
    source: _Source = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="A repaired value, as column=value.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the contract again on rows, repaired or not, and take those that now hold it."""
    from gogh_core.telemetry import readmit

    repaired: dict[str, str] = {}
    for entry in given or []:
        key, equals, value = entry.partition("=")
        if not equals:
            raise InvalidInput(f"{entry!r} is not column=value", where="--set")
        repaired[key.strip()] = value.strip()
    settings, store = open_store()
    now = cluster_time(settings, store)
    done = readmit(store, settings, ids or [], source=source, now=now, repaired=repaired)
    if as_json:
        echo_json({"readmitted": done.readmitted, "still_held": done.still_held})
    else:
        typer.echo(f"{len(done.readmitted)} readmitted, {len(done.still_held)} still held")
        for held_id, why in done.still_held.items():
            typer.echo(f"  {held_id[:10]}: {why}")
    if done.still_held:
        raise typer.Exit(1)


def drop_rows(ids: _Ids = None, source: _Source = None, as_json: AsJson = False) -> None:
    """Settle rows without using them; they stay in the quarantine as dropped."""
    from gogh_core.telemetry import drop

    settings, store = open_store()
    count = drop(store, ids or [], source=source, now=cluster_time(settings, store))
    if as_json:
        echo_json({"dropped": count})
    else:
        typer.echo(f"{count} dropped")
