"""`gogh bench NAME`: every room's benchmark, as ratios within one run."""

from __future__ import annotations

import importlib
import importlib.util

import typer

__all__ = ["register"]

_BENCHES = ("store", "ingest", "agent", "estimators", "allocation", "cluster", "cycle")


def register(app: typer.Typer) -> None:
    """Add `gogh bench` with what the rooms bring (`register_bench`)."""
    bench = typer.Typer(
        help="Benchmarks, as ratios within one run.", no_args_is_help=True, add_completion=False
    )
    for name in _BENCHES:
        module = f"gogh_core.bench.{name}"
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module).register_bench(bench)
    app.add_typer(bench, name="bench")
