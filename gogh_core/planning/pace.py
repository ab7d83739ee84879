"""The clock of an embedded cluster, in step with the wall's while `gogh up` runs.

A real cluster's time passes by itself. An embedded one is run up to a window when its cycle begins,
once for each window, and follows the wall's clock in between, at most to the end of the window, so
that jobs come and end while people look. Where nobody follows (no `gogh watch`), the next cycle
makes up for it.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from gogh_core.cluster import ClusterManager
from gogh_core.settings import Settings
from gogh_core.store import Store, fetch

__all__ = ["follow", "run_up_to_window"]


def run_up_to_window(
    settings: Settings, store: Store, manager: ClusterManager, *, key: str, wall: datetime
) -> None:
    """Run the cluster to the end of the window planned last, unless `key` has begun its cycle."""
    with _alone(settings):
        with store.read() as connection:
            claimed = fetch(connection, "planning_by_key", request_key=key).num_rows > 0
            last = fetch(connection, "planning_list", rows=1, missed=False).to_pylist()
        if claimed:
            return
        if last:
            end = last[0]["window_start"] + timedelta(seconds=settings.cycle.window_s)
            manager.advance(max(0.0, (end - manager.clock()).total_seconds()))
        anchor = {"wall": wall.isoformat(), "cluster": manager.clock().isoformat()}
        part = _anchor(settings).with_suffix(".part")
        part.write_text(json.dumps(anchor), encoding="utf-8")
        part.replace(_anchor(settings))


def follow(settings: Settings, manager: ClusterManager, *, wall: datetime) -> None:
    """Run the cluster as far as the wall's clock went since its window began."""
    if manager.real:
        return
    with _alone(settings):
        try:
            anchor = json.loads(_anchor(settings).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        gone_s = (wall - datetime.fromisoformat(anchor["wall"])).total_seconds()
        since = datetime.fromisoformat(anchor["cluster"])
        until = since + timedelta(seconds=min(gone_s, settings.cycle.window_s))
        manager.advance(max(0.0, (until - manager.clock()).total_seconds()))


def _anchor(settings: Settings) -> Path:
    return settings.below_home(Path("run") / "pace.json")


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    folder = settings.below_home(Path("run"))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "advance.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
