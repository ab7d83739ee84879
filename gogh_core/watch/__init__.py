"""Watching GOGH itself: figures for people and Prometheus, and events that cannot wait."""

from gogh_core.watch.events import Event, Kind, Seen, look
from gogh_core.watch.metrics import exposition, rules, serve
from gogh_core.watch.overview import Overview, overview
from gogh_core.watch.readings import (
    accuracy,
    batches,
    held,
    last_window,
    missed,
    newest,
    versions,
    windows,
)

__all__ = [
    "Event",
    "Kind",
    "Overview",
    "Seen",
    "accuracy",
    "batches",
    "exposition",
    "held",
    "last_window",
    "look",
    "missed",
    "newest",
    "overview",
    "rules",
    "serve",
    "versions",
    "windows",
]
