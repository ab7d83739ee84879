"""One of the crowd: `python -m tests.e2e.store.crowd ROLE HOME SECONDS NUMBER`."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from gogh_core.settings import load
from gogh_core.store import Store, ask

NOON = datetime(2026, 1, 5, 12, 30, tzinfo=UTC)
ROWS = 300


def batch(writer: int, number: int) -> pa.Table:
    """Samples of an hour that is old enough to leave the database, or of one that is not."""
    hour = NOON - timedelta(hours=(1, 9, 8)[number % 3])
    return pa.table(
        {
            "ts": pa.array([hour] * ROWS, pa.timestamp("us", "UTC")),
            "server_id": [f"w{writer}-{number}"] * ROWS,
            "gpu_index": pa.array(range(ROWS), pa.int32()),
        }
    )


def write(store: Store, until: float, writer: int) -> int:
    """Append as fast as it goes; the first writer ages, the second publishes."""
    number = 0
    while time.monotonic() < until:
        store.append("gpu_samples", batch(writer, number))
        number += 1
        if writer == 0 and number % 25 == 0:
            store.age(NOON)
        if writer == 1 and number % 5 == 0:
            store.publish()
    return number


def read(store: Store, until: float) -> int:
    """Ask the snapshot again and again; what was seen once never goes away."""
    asked = seen = 0
    while time.monotonic() < until:
        (row,) = ask(
            store,
            "SELECT count(*) AS n, count(DISTINCT (server_id, gpu_index)) AS d "
            "FROM gpu_samples_all",
        ).to_pylist()
        assert row["n"] == row["d"], row
        assert row["n"] >= seen, (row, seen)
        seen = row["n"]
        asked += 1
    return asked


def main() -> None:
    """Work until the time is over, and tell how much was done."""
    role, home, seconds, number = sys.argv[1:]
    store = Store(load(home=Path(home)))
    until = time.monotonic() + float(seconds)
    done = write(store, until, int(number)) if role == "write" else read(store, until)
    print(json.dumps(done))


if __name__ == "__main__":
    main()
