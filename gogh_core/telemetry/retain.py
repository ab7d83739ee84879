"""Retention of the spool: what was taken in or refused leaves the disk when it is old enough.

Only a file that the ledger knows as read to its end or refused, and that is exactly as it was then,
is removed. The ledger is told afterwards, so a run that is ended in between loses nothing: the next
one forgets the file. A copy that is put back later brings duplicates or late rows, no new ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime

import duckdb

from gogh_core.settings import Settings
from gogh_core.store import Store, fetch
from gogh_core.telemetry.spool import Position, scan

__all__ = ["clean_spool", "known_files"]


def known_files(connection: duckdb.DuckDBPyConnection) -> dict[str, Position]:
    """Every file that was seen, by its path below the spool."""
    rows = fetch(connection, "telemetry_known_files").to_pylist()
    return {row["path"]: Position(**row) for row in rows}


def clean_spool(
    store: Store,
    settings: Settings,
    known: Mapping[str, Position],
    *,
    now: datetime,
    tell: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.time,
) -> int:
    """Remove old files that were wholly taken in or refused; how many.

    A file that was taken in is as old as the file system says. One that was refused has to lie
    there for as long after that, by the cluster's clock `now`: nobody sees it before.
    """
    telemetry = settings.telemetry
    before_ns = (clock() - telemetry.spool_keep_s) * 1e9
    before_s = now.timestamp() - telemetry.spool_keep_s
    old = {
        key: position
        for key, position in known.items()
        if position.mtime_ns < before_ns and _may_go(position, before_s)
    }
    if not old or not settings.spool.is_dir():
        return 0
    removed, trouble = 0, ""
    for found in scan(settings.spool, max_file_mb=telemetry.max_file_mb):
        position = old.get(found.key)
        if position is None:
            continue
        if found.name and found.unchanged(position):
            try:
                found.path.unlink(missing_ok=True)
                removed += 1
                continue
            except OSError as error:  # another's folder; the file is known and does no harm
                done = "refused" if position.status == "refused" else "taken in"
                trouble = f"{found.key} was {done} but cannot be removed ({error.strerror})"
        del old[found.key]
    if trouble:
        tell(trouble)
    if old:
        with store.write() as connection:
            fetch(connection, "telemetry_forget_files", paths=sorted(old))
    return removed


def _may_go(position: Position, before_s: float) -> bool:
    """Whether it was taken in, or refused long enough ago."""
    if position.status != "refused":
        return True
    return position.updated_s is not None and position.updated_s < before_s
