"""Watching GOGH itself: figures for people and Prometheus, and events that cannot wait."""

from gogh_core.watch.events import Event, Kind, Seen, look
from gogh_core.watch.metrics import exposition, rules, serve
from gogh_core.watch.readings import accuracy, batches, held, newest, versions, windows

__all__ = [
    "Event",
    "Kind",
    "Seen",
    "accuracy",
    "batches",
    "exposition",
    "held",
    "look",
    "newest",
    "rules",
    "serve",
    "versions",
    "windows",
]
