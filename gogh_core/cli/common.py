"""What several commands share: `--json`, `--now`, the store, its clock, how values are printed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gogh_core.settings import Settings, load

if TYPE_CHECKING:
    from gogh_core.store import Store

__all__ = ["AsJson", "Now", "cluster_time", "echo_json", "in_utc", "open_store"]

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
Now = Annotated[datetime | None, typer.Option(help="The time it is (UTC); the cluster's if none.")]


def echo_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=2, default=str))


def in_utc(moment: datetime) -> datetime:
    """The moment a person typed; one without a zone is meant in UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def open_store(config: Path | None = None) -> tuple[Settings, Store]:
    """The settings and their store, which is there and up to date."""
    from gogh_core.store import Store

    settings = load(config)
    store = Store(settings)
    store.must_exist()
    store.migrate()
    return settings, store


def cluster_time(settings: Settings, store: Store) -> datetime:
    """The clock of the store: its cluster's."""
    from gogh_core.cluster import open_manager

    return open_manager(settings, store).clock()
