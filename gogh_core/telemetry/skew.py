"""Clock skew between servers: measured, corrected where it can be, reported.

A file was received when it was last written, by the clock of the file system that all share. What
lies between that and its newest sample is delay and skew together. Delays are alike for servers
that are received in one run, so a server's offset is its own difference against the median of all.
It counts as skew, and is corrected, when three receipts in a row agree within two seconds on more
than a second and a half; a server that fell silent is late once, not skewed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from statistics import median

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gogh_core.store import append_rows, fetch
from gogh_core.telemetry.parse import Piece

__all__ = ["Clocks"]

_RECEIPTS = 3
_AGREE_S = 2.0
_SKEW_S = 1.5


class Clocks:
    """The offsets of all servers in one run."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        rows = fetch(connection, "telemetry_clock_offsets", receipts=_RECEIPTS).to_pylist()
        recent: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            recent[row["server_id"]].append(row["offset_s"])
        self.skew_s: dict[str, float] = {
            server: round(median(offsets), 1)
            for server, offsets in recent.items()
            if len(offsets) >= _RECEIPTS
            and max(offsets) - min(offsets) <= _AGREE_S
            and abs(median(offsets)) > _SKEW_S
        }
        self._shown: list[dict[str, object]] = []

    def corrected(self, rows: pa.Table, pieces: Sequence[Piece]) -> pa.Table:
        """The rows with their times corrected; the offsets they show are noted first."""
        if pieces[0].table != "gpu_samples" or not len(rows):
            return rows
        newest = rows.group_by(["part", "server_id"]).aggregate([("ts", "max")]).to_pylist()
        for row in newest:
            received = pieces[row["part"]].received
            if received is not None and row["server_id"] is not None and row["ts_max"] is not None:
                behind = (received - row["ts_max"]).total_seconds()
                self._shown.append({"server_id": row["server_id"], "behind_s": behind})
        skewed = {row["server_id"] for row in newest} & set(self.skew_s)
        if not skewed:
            return rows
        ts = pc.cast(rows["ts"], pa.int64())
        for server in sorted(skewed):
            shifted = pc.subtract(ts, round(self.skew_s[server] * 1e6))
            ts = pc.if_else(pc.fill_null(pc.equal(rows["server_id"], server), False), shifted, ts)
        column = pc.cast(ts, rows["ts"].type)
        return rows.set_column(rows.column_names.index("ts"), "ts", column)

    def forget(self) -> None:
        """Leave out what a batch showed that was not stored."""
        self._shown = []

    def keep(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Keep what the batch showed, in the batch's own transaction."""
        if self._shown:
            append_rows(connection, "clock_receipts", pa.Table.from_pylist(self._shown))
            self._shown = []

    def settle(self, connection: duckdb.DuckDBPyConnection, now: datetime) -> dict[str, float]:
        """Make offsets of what batches showed, also those of a run that was ended before it
        settled; the skews that were corrected.
        """
        shown = fetch(connection, "telemetry_clock_receipts").to_pylist()
        behind = {row["server_id"]: row["behind_s"] for row in shown}
        if len(behind) >= 2:
            append_rows(connection, "clock_offsets", self._offsets(behind, now))
            fetch(connection, "telemetry_trim_clock_offsets", keep=100)
        if shown:
            fetch(connection, "telemetry_settle_clock_receipts")
        return dict(self.skew_s)

    def _offsets(self, behind: dict[str, float], now: datetime) -> pa.Table:
        middle = median(behind.values())
        return pa.table(
            {
                "server_id": list(behind),
                "received_at": pa.array([now] * len(behind), pa.timestamp("us", "UTC")),
                # Ahead of the others: its newest sample looks younger than theirs.
                "offset_s": [middle - value for value in behind.values()],
                "corrected_s": [self.skew_s.get(server, 0.0) for server in behind],
            }
        )
