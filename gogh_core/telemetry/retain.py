"""Retention of the spool: what was wholly taken in leaves the disk when it is old enough.

Only a file that the ledger knows as read to its end, and that is exactly as it was then, is
removed. The ledger is told afterwards, so a run that is ended in between loses nothing: the next
one forgets the file. A copy that is put back later brings duplicates or late rows, no new ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

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
    taken: Mapping[str, Position],
    *,
    tell: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.time,
) -> int:
    """Remove old files that were wholly taken in; how many. Times are those of the file system."""
    telemetry = settings.telemetry
    before_ns = (clock() - telemetry.spool_keep_s) * 1e9
    old = {key: p for key, p in taken.items() if p.mtime_ns < before_ns}
    if not old or not settings.spool.is_dir():
        return 0
    removed, trouble = 0, ""
    for found in scan(settings.spool, max_file_mb=telemetry.max_file_mb):
        known = old.get(found.key)
        if known is None:
            continue
        if known.status == "taken" and found.refused is None and found.unchanged(known):
            try:
                found.path.unlink(missing_ok=True)
                removed += 1
                continue
            except OSError as error:  # another's folder; the file is known and does no harm
                trouble = f"{found.key} was taken in but cannot be removed ({error.strerror})"
        del old[found.key]
    if trouble:
        tell(trouble)
    if old:
        with store.write() as connection:
            fetch(connection, "telemetry_forget_files", paths=sorted(old))
    return removed
