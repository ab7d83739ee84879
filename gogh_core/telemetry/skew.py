"""Clock skew between servers: measured, corrected where it can be, reported.

A file was received when it was last written, by the clock of the file system that all share. What
lies between that and its newest sample is delay and skew together. Delays are alike for servers
that are received in one run, so a server's offset is its own difference against the median of all.
It counts as skew, and is corrected, when three receipts in a row agree within two seconds on more
than a second and a half; a server that fell silent is late once, not skewed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import datetime
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc

from gogh_core.settings import Settings
from gogh_core.store import Store, append_rows, fetch
from gogh_core.telemetry.parse import Piece

__all__ = ["Clocks"]

_RECEIPTS = 3
_AGREE_S = 2.0
_SKEW_S = 1.5


class Clocks:
    """The offsets of all servers in one run."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        with store.read() as connection:
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
        self._behind: dict[str, list[float]] = defaultdict(list)

    def corrected(self, piece: Piece) -> Piece:
        """The piece with its times corrected; its own offset is noted first."""
        if piece.table != "gpu_samples" or piece.received is None or not len(piece.rows):
            return piece
        rows = piece.rows
        newest = rows.select(["server_id", "ts"]).group_by("server_id").aggregate([("ts", "max")])
        for row in newest.to_pylist():
            if row["server_id"] is not None and row["ts_max"] is not None:
                behind = (piece.received - row["ts_max"]).total_seconds()
                self._behind[row["server_id"]].append(behind)
        skewed = {
            name: self.skew_s[name]
            for name in newest["server_id"].to_pylist()
            if name in self.skew_s
        }
        if not skewed:
            return piece
        servers = rows["server_id"]
        ts = pc.cast(rows["ts"], pa.int64())
        for server, skew_s in skewed.items():
            shifted = pc.subtract(ts, round(skew_s * 1e6))
            ts = pc.if_else(pc.fill_null(pc.equal(servers, server), False), shifted, ts)
        column = pc.cast(ts, rows["ts"].type)
        notes = (
            *piece.notes,
            *(f"clock of {s} corrected by {-v:+.1f} s" for s, v in skewed.items()),
        )
        index = rows.column_names.index("ts")
        return _with(piece, rows.set_column(index, "ts", column), notes)

    def settle(self, now: datetime) -> dict[str, float]:
        """Keep what this run showed; the skews that were corrected."""
        behind = {server: min(values) for server, values in self._behind.items()}
        if len(behind) >= 2:
            middle = median(behind.values())
            rows = pa.table(
                {
                    "server_id": list(behind),
                    "received_at": pa.array([now] * len(behind), pa.timestamp("us", "UTC")),
                    # Ahead of the others: its newest sample looks younger than theirs.
                    "offset_s": [middle - value for value in behind.values()],
                    "corrected_s": [self.skew_s.get(server, 0.0) for server in behind],
                }
            )
            with self._store.write() as connection:
                append_rows(connection, "clock_offsets", rows)
                fetch(connection, "telemetry_trim_clock_offsets", keep=100)
        return dict(self.skew_s)


def _with(piece: Piece, rows: pa.Table, notes: tuple[str, ...]) -> Piece:
    return replace(piece, rows=rows, notes=notes)
