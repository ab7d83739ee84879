"""`gogh estimate`, `describe`, `retrain` and `models`: the networks from the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

# Before numpy is loaded: small matrices are slower with several threads on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__all__ = ["register"]

_Json = Annotated[bool, typer.Option("--json", help="As JSON.")]
_Config = Annotated[Path | None, typer.Option(help="Another gogh.toml.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("estimate")(estimate)
    app.command("describe")(describe)
    app.command("retrain")(retrain)
    models = typer.Typer(
        help="Versions of the networks.", no_args_is_help=True, add_completion=False
    )
    models.command("list")(list_models)
    models.command("rollback")(rollback)
    app.add_typer(models, name="models")


def _say(as_json: bool, facts: dict[str, Any], line: str) -> None:
    typer.echo(json.dumps(facts) if as_json else line)


def estimate(
    catalog: Annotated[Path, typer.Option(help="What was measured: Parquet or CSV.")],
    queries: Annotated[Path, typer.Option(help="What is asked: the same columns.")],
    out: Annotated[Path, typer.Option(help="Where the estimates go (.parquet or .csv).")],
    as_json: _Json = False,
    config: _Config = None,
) -> None:
    """Throughput, interval and feasibility of every query row: P1, P2, or measured."""
    from gogh_core.errors import InvalidInput

    for path in (catalog, queries):
        if not path.is_file():  # told before torch is imported, which takes seconds
            raise InvalidInput("there is no such file", where=str(path))

    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    from gogh_core import settings as all_settings
    from gogh_core.estimation import estimate_table, load_estimator

    estimator = load_estimator(all_settings.load(config).models)
    if estimator.refused:
        typer.echo(f"gogh: went on without: {estimator.refused}", err=True)
    table = estimate_table(catalog, queries, estimator=estimator)
    try:
        if out.suffix.lower() == ".csv":
            pa_csv.write_csv(table, out)
        else:
            pq.write_table(table, out)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInput(f"cannot be written: {reason}", where=str(out)) from error
    networks = table["network"].to_pylist()
    counts = {name: networks.count(name) for name in ("measured", "P2", "P1")}
    facts = {"rows": table.num_rows, "networks": counts, "version": estimator.version}
    shares = ", ".join(f"{count} {name}" for name, count in counts.items())
    _say(as_json, facts, f"{table.num_rows} rows estimated ({shares}) -> {out}")


def describe(
    factory: Annotated[str, typer.Argument(help="module:function that returns a torch module.")],
    shape: Annotated[str, typer.Option("--input", help="Shape of one batch: 64x3x224x224.")],
    dtype: Annotated[str, typer.Option(help="float or int (token ids).")] = "float",
    as_json: _Json = False,
) -> None:
    """Parameters, FLOPs, bytes and memory of one training step, by torch's own counter."""
    from gogh_core.estimation import describe_factory

    found = describe_factory(factory, shape, integers=dtype == "int")
    lines = [f"{name} = {value:.6g}" for name, value in found.items()]
    _say(as_json, found, "\n".join(lines))


def retrain(
    budget_s: Annotated[float | None, typer.Option(help="Seconds to learn for.")] = None,
    full: Annotated[bool, typer.Option("--full", help="P1 too.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    catalog: Annotated[Path | None, typer.Option(help="A throughput table, not the store.")] = None,
    as_json: _Json = False,
    config: _Config = None,
) -> None:
    """Learn from the newest observations; the result serves only if it is better."""
    from gogh_core import settings as all_settings
    from gogh_core.estimation import Catalog, Registry, load_catalog
    from gogh_core.estimation import retrain as learn

    settings = all_settings.load(config)
    source: Any
    if catalog is not None:
        source = load_catalog(catalog)
    else:
        from gogh_core.cli.common import cluster_time
        from gogh_core.store import Store

        store = Store(settings)
        store.migrate()
        now = cluster_time(settings, store)
        half_life_days = settings.estimation.half_life_days
        source = Catalog.from_store(store, now=now, half_life_days=half_life_days)
    report = learn(
        source,
        Registry(settings.models),
        budget_s=budget_s or settings.estimation.retrain_budget_s,
        seed=seed,
        full=full,
    )
    what = "promoted" if report.promoted else "kept"
    spent = f"{report.classes} classes, {report.seconds:.1f} s"
    _say(as_json, report.to_dict(), f"{what} {report.version}: {report.reason} ({spent})")


def list_models(as_json: _Json = False, config: _Config = None) -> None:
    """All versions, and which one serves."""
    from dataclasses import asdict

    from gogh_core import settings as all_settings
    from gogh_core.estimation import Registry

    registry = Registry(all_settings.load(config).models)
    serving = registry.serving
    versions = registry.versions()
    lines = [f"{'*' if serving == 'shipped' else ' '} shipped"]
    for version in versions:
        mark = "*" if version.id == serving else " "
        lines.append(f"{mark} {version.id}  {version.kind}  {version.reason}  {version.created_at}")
    facts = {"serving": serving, "versions": [asdict(version) for version in versions]}
    _say(as_json, facts, "\n".join(lines))


def rollback(as_json: _Json = False, config: _Config = None) -> None:
    """Back to the version that served before."""
    from gogh_core import settings as all_settings
    from gogh_core.estimation import Registry

    now = Registry(all_settings.load(config).models).rollback()
    _say(as_json, {"serving": now}, f"{now} serves now")
