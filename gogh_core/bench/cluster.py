"""`gogh bench cluster`: the journal of a large plan against that of a small one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from gogh_core.settings import load

__all__ = ["register_bench"]


def register_bench(app: typer.Typer) -> None:
    """Add `gogh bench cluster`."""
    app.command("cluster")(cluster)


def cluster(
    actions: Annotated[int, typer.Option(min=10, help="Actions of the large plan.")] = 10_000,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """The journal: a plan of 10,000 actions against one of a tenth of them."""
    from gogh_core.bench.journal import journal_load

    with tempfile.TemporaryDirectory(prefix="gogh-bench-") as folder:
        small = journal_load(load(home=Path(folder) / "small"), actions // 10)
        large = journal_load(load(home=Path(folder) / "large"), actions)
    ratio = large.per_action_ms / small.per_action_ms
    if as_json:
        result = {
            "actions": large.actions,
            "confirmed": large.report.confirmed,
            "seconds": large.seconds,
            "ms_per_action": large.per_action_ms,
            "ms_per_action_of_a_tenth": small.per_action_ms,
            "ratio": ratio,
        }
        typer.echo(json.dumps(result))
        return
    for one in (small, large):
        typer.echo(
            f"{one.actions:6d} actions in {one.seconds:.2f} s, {one.per_action_ms:.3f} ms each, "
            f"{one.report.confirmed} confirmed"
        )
    typer.echo(f"an action of the large plan costs {ratio:.2f} times one of the small plan")
