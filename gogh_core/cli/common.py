"""What several commands share: `--json`, `--now`, and how values are printed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

__all__ = ["AsJson", "Now", "echo_json", "in_utc"]

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
Now = Annotated[datetime | None, typer.Option(help="The time it is (UTC); the clock if none.")]


def echo_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=2, default=str))


def in_utc(moment: datetime) -> datetime:
    """The moment a person typed; one without a zone is meant in UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
