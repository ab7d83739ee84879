"""`gogh settings`: what can be set, and what is set now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gogh_core import settings as all_settings

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("settings")(show)


def show(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    page: Annotated[bool, typer.Option("--page", help="The page of docs/settings.md.")] = False,
    config: Annotated[Path | None, typer.Option(help="Another gogh.toml.")] = None,
) -> None:
    """What can be set, what it means, and what it is now; secrets are not shown."""
    if page:
        typer.echo(all_settings.page(), nl=False)
        return
    now = all_settings.load(config).model_dump(mode="json")
    if as_json:
        typer.echo(json.dumps(now, indent=2))
        return
    for section, value in now.items():
        if not isinstance(value, dict):
            typer.echo(f"{section} = {json.dumps(value)}")
    for section, value in now.items():
        if isinstance(value, dict):
            typer.echo(f"\n[{section}]")
            for key, entry in value.items():
                typer.echo(f"{key} = {json.dumps(entry)}")
