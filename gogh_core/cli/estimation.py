"""`gogh estimate`: catalog and queries in, estimates out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("estimate")(estimate)


def estimate(
    catalog: Annotated[Path, typer.Option(help="What was measured: Parquet or CSV.")],
    queries: Annotated[Path, typer.Option(help="What is asked: the same columns.")],
    out: Annotated[Path, typer.Option(help="Where the estimates go (.parquet or .csv).")],
    as_json: Annotated[bool, typer.Option("--json", help="A summary as JSON.")] = False,
) -> None:
    """Throughput, interval and feasibility of every query row: P1, P2, or measured."""
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    from gogh_core import settings as all_settings
    from gogh_core.errors import InvalidInput
    from gogh_core.estimation import estimate_table, load_estimator

    estimator = load_estimator(all_settings.load().models)
    table = estimate_table(catalog, queries, estimator=estimator)
    try:
        if out.suffix.lower() == ".csv":
            pa_csv.write_csv(table, out)
        else:
            pq.write_table(table, out)
    except OSError as error:
        raise InvalidInput(
            f"cannot be written: {error.strerror or error}", where=str(out)
        ) from error
    networks = table["network"].to_pylist()
    counts = {name: networks.count(name) for name in ("measured", "P2", "P1")}
    if as_json:
        typer.echo(
            json.dumps({"rows": table.num_rows, "networks": counts, "version": estimator.version})
        )
    else:
        shares = ", ".join(f"{count} {name}" for name, count in counts.items())
        typer.echo(f"{table.num_rows} rows estimated ({shares}) -> {out}")
