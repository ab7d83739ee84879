"""`gogh bench NAME`: every room's benchmark, as ratios within one run."""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import Any

import typer
from typer.core import TyperGroup

__all__ = ["register"]

_BENCHES = (
    "store",
    "ingest",
    "agent",
    "estimators",
    "allocation",
    "cluster",
    "cycle",
    "loop",
    "replay",
)


class _OnDemand(TyperGroup):
    """What the rooms bring (`register_bench`), imported when it is asked for: some bring numpy."""

    @cached_property
    def _found(self) -> dict[str, Any]:
        bench = typer.Typer(add_completion=False)
        for name in _BENCHES:
            importlib.import_module(f"gogh_core.bench.{name}").register_bench(bench)
        group = typer.main.get_command(bench)
        assert isinstance(group, TyperGroup)
        return dict(group.commands)

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        return list(self._found)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them."""
        return self._found.get(cmd_name)


def register(app: typer.Typer) -> None:
    """Add `gogh bench`."""
    bench = typer.Typer(
        cls=_OnDemand,
        help="Benchmarks, as ratios within one run.",
        no_args_is_help=True,
        add_completion=False,
    )
    app.add_typer(bench, name="bench")
