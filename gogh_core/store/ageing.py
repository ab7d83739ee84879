"""Ageing: hot samples to Parquet by hour, full days compacted, old files and rows dropped.

Which files count is decided by the manifest (`sample_files`) alone. A file is complete and on disk
before the transaction that enters it in the manifest and deletes its rows from the database; so a
kill at any point leaves every row in exactly one place. Files that the manifest does not name are
removed by the next ageing. A retired file stays until a newer snapshot was published and readers of
the older one had time to finish. A file that is too old is hidden when the clock can be believed
(`clock`), comes back when a later ageing finds that it is not too old, and is removed a day later.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gogh_core.errors import StoreError
from gogh_core.store import clock, commits, files, retention, samples, views
from gogh_core.store.texts import fetch, fill, run, statement

if TYPE_CHECKING:
    import duckdb

    from gogh_core.store.database import Store

__all__ = ["AgeReport", "age", "only_one"]

# How long a query on an older snapshot may take before the files it reads are removed.
_GRACE_S = 900.0
# How long hours are moved before other writers get their turn.
_TURN_S = 0.5


@dataclass(frozen=True, slots=True)
class AgeReport:
    """What one ageing did."""

    rows_moved: int = 0
    hours_written: int = 0
    days_compacted: int = 0
    files_expired: int = 0
    files_removed: int = 0
    files_returned: int = 0
    doubt: str = ""
    """Why the clock was not believed, so that nothing was hidden or removed as too old."""
    dropped_before: datetime | None = None
    """Plans, observations, the ledger and the like were dropped where they are older than this."""


@contextmanager
def only_one(store: Store) -> Iterator[None]:
    """Files of samples are made and removed by one process at a time."""
    lock = store.path.with_name(store.path.name + ".age")
    with files.only_one(lock, store.settings.store.lock_timeout_s):
        yield


def age(store: Store, now: datetime) -> AgeReport:
    """Move what is old enough, compact, expire, and remove what is not needed any more."""
    cutoff = (now - timedelta(hours=store.settings.store.hot_hours)).replace(
        minute=0, second=0, microsecond=0
    )
    with only_one(store):
        _claim(store)
        look = _look(store, now)
        moved = _move_hours(store, cutoff)
        returned, expired, manifest = _expire(store, look)
        removed = _clean(store, manifest, look)
        fragmented = _fragmented_days(manifest, cutoff)
        for table, day, parts in fragmented:
            _compact(store, table, day, parts)
        dropped = retention.drop_old(store, look)
    return AgeReport(
        sum(moved), len(moved), len(fragmented), expired, removed, returned, look.doubt, dropped
    )


def _claim(store: Store) -> None:
    """See that the folder of samples is ours before anything is written or removed there."""
    with store.read() as connection:
        store_id = commits.identity(connection)
        names = fetch(connection, "store_file_names")["file"].to_pylist()
    samples.checked(names, store.path)
    samples.claim(store.samples, store.path, store_id, names)


def _look(store: Store, now: datetime) -> clock.Look:
    """The clocks as they are now beside those of the last ageing; noted for the next one."""
    virtual = store.virtual
    with store.write() as connection:
        newest = fetch(connection, "store_newest_sample")["newest"][0].as_py()
        last = fetch(connection, "store_fact", name="ageing")["value"].to_pylist()
        look = clock.look(now, newest, last[0] if last else None, virtual=virtual)
        fetch(connection, "store_set_fact", name="ageing", value=look.noted())
    return look


def _move_hours(store: Store, cutoff: datetime) -> list[int]:
    """Move every hour before the cutoff, each in a transaction; the rows of each."""
    moved: list[int] = []
    left = list(views.AGED)
    while left:
        turn_ends = time.monotonic() + _TURN_S
        with store.gate(), store.connect() as connection:
            while left and time.monotonic() < turn_ends:
                with store.transaction(connection):
                    rows = _move_oldest_hour(store, connection, left[0], cutoff)
                if rows is None:
                    left.pop(0)
                else:
                    moved.append(rows)
    return moved


def _move_oldest_hour(
    store: Store, connection: duckdb.DuckDBPyConnection, table: str, cutoff: datetime
) -> int | None:
    found = run(connection, _sql("store_oldest_hour", table), {"cutoff": cutoff})
    start: datetime | None = found["hour"][0].as_py()
    if start is None:
        return None
    end = start + timedelta(hours=1)
    name = f"{table}/day={start:%Y-%m-%d}/hour={start:%H}/{uuid.uuid4().hex}.parquet"
    span = {"range_from": start, "range_to": end}
    copied = _write(store, connection, name, _sql("store_copy_hour", table), span)
    deleted = _count(run(connection, _sql("store_delete_hour", table), span))
    if deleted != copied:
        raise StoreError(f"copied {copied} rows but deleted {deleted}", where=str(store.path))
    entry = {"file": name, "table": table, "span": "hour", "rows": copied, **span}
    _enter(store, connection, entry)
    views.renew_samples(connection, table, store.samples)
    return copied


def _fragmented_days(
    manifest: list[dict[str, Any]], cutoff: datetime
) -> list[tuple[str, datetime, list[str]]]:
    """Days that have left the database wholly and lie in more than one file."""
    by_day: dict[tuple[str, datetime], list[str]] = defaultdict(list)
    for row in manifest:
        day = row["range_from"].replace(hour=0)
        if row["retired_at"] is None and day + timedelta(days=1) <= cutoff:
            by_day[row["table_name"], day].append(row["file"])
    return [(table, day, parts) for (table, day), parts in by_day.items() if len(parts) > 1]


def _compact(store: Store, table: str, day: datetime, parts: list[str]) -> None:
    name = f"{table}/day={day:%Y-%m-%d}/{uuid.uuid4().hex}.parquet"
    sources = {"files": [str(store.samples / part) for part in parts]}
    # The files never change, so nobody has to wait while they are joined.
    with store.connect(Path(":memory:")) as apart:
        rows = _write(store, apart, name, statement("store_copy_files"), sources)
    span = {"range_from": day, "range_to": day + timedelta(days=1)}
    with store.write() as connection:
        expected = fetch(connection, "store_rows_of_files", files=parts)["rows"][0].as_py()
        if expected != rows:
            raise StoreError(f"{rows} rows instead of {expected}", where=str(store.samples / name))
        entry = {"file": name, "table": table, "span": "day", "rows": rows, **span}
        _enter(store, connection, entry)
        fetch(connection, "store_retire_files", files=parts, at=time.time())
        views.renew_samples(connection, table, store.samples)


def _expire(store: Store, look: clock.Look) -> tuple[int, int, list[dict[str, Any]]]:
    """Bring back what was hidden by a wrong clock; hide what is too old, if the clock is believed.

    Gives how many files came back, how many were hidden, and the manifest.
    """
    oldest = look.now - timedelta(days=store.settings.store.retention_days)
    with store.write() as connection:
        manifest = fetch(connection, "store_manifest").to_pylist()
        back = [
            r["file"] for r in manifest if r["expired_s"] is not None and r["range_to"] > oldest
        ]
        gone = [r for r in manifest if r["retired_at"] is None and r["range_to"] <= oldest]
        if look.doubt:
            gone = []
        if back:
            fetch(connection, "store_return_files", files=back)
        if gone:
            fetch(
                connection,
                "store_expire_files",
                files=[row["file"] for row in gone],
                at=time.time(),
                steady_s=look.steady_s,
            )
        if back or gone:
            for table in views.AGED:
                views.renew_samples(connection, table, store.samples)
            manifest = fetch(connection, "store_manifest").to_pylist()
    return len(back), len(gone), manifest


def _clean(store: Store, manifest: list[dict[str, Any]], look: clock.Look) -> int:
    """Remove files that the manifest does not name, and retired ones that nobody reads any more."""
    before = time.time() - _GRACE_S
    if store.snapshot_path.exists():
        published = store.snapshot_path.stat().st_mtime
        before = min(before, published)
        if published > samples.claimed_at(store.samples):
            samples.leave(store.samples, [row["file"] for row in manifest], store.older_samples)
    named = {row["file"] for row in manifest}
    done = [
        row["file"]
        for row in manifest
        if row["retired_at"] is not None
        and row["retired_at"] < before
        and (row["expired_s"] is None or look.agrees_with(row["expired_s"]))
    ]
    with samples.opened(store.samples) as folder:
        strays = samples.strays(folder, named)
        for name in (*strays, *done):
            samples.remove(folder, name)
    if done:
        with store.write() as connection:
            fetch(connection, "store_forget_files", files=done)
    return len(strays) + len(done)


def _write(
    store: Store,
    connection: duckdb.DuckDBPyConnection,
    name: str,
    sql: str,
    parameters: dict[str, Any],
) -> int:
    """Run a COPY into a file below the samples; it is complete and on disk when this returns."""
    target = store.samples / name
    part = target.with_suffix(".part")
    samples.make_place(store.samples, name)
    with files.whole_or_gone(part):
        rows = _count(run(connection, sql, {**parameters, "target": str(part)}))
        files.sync(part)
        files.replace(part, target)
    return rows


def _enter(store: Store, connection: duckdb.DuckDBPyConnection, entry: dict[str, Any]) -> None:
    """Enter a file in the manifest; with the commit it counts."""
    size = (store.samples / entry["file"]).stat().st_size
    fetch(connection, "store_enter_file", bytes=size, created_at=files.now_utc(), **entry)


def _sql(name: str, table: str) -> str:
    return fill(statement(name), table=table)


def _count(result: Any) -> int:
    return int(result[0][0].as_py())
