"""Seating in a hurry: alone, where the options of a job's group cost least and there is room."""

from __future__ import annotations

import numpy as np

from gogh_core.allocation.board import Board
from gogh_core.allocation.compiled import Seat
from gogh_core.allocation.room import Rooms

__all__ = ["Quick"]


class Quick:
    """Seats gangs alone by a list that is made once for each group."""

    def __init__(self, board: Board, rooms: Rooms) -> None:
        self.board, self.rooms = board, rooms
        self.ways: dict[int, list[tuple[float, int, int, int]]] = {}

    def _of(self, group: int, j: int) -> list[tuple[float, int, int, int]]:
        """(watts with a share of the server, row, GPUs, kind), cheapest first."""
        c = self.board.compiled
        _, usable, rows = c.rows_of(j)
        found = []
        for row in rows[np.flatnonzero(usable & ~c.pair[rows])].tolist():
            m, t = int(c.table.gpus[row]), int(c.table.type_id[row])
            for k in c.kinds_with(t):
                kind = c.kinds[k]
                if kind.size >= m and m <= c.largest[t]:
                    found.append((float(c.net_w[row]) + kind.use_w * m / kind.size, row, m, k))
        return self.ways.setdefault(group, sorted(found))

    def seat(self, j: int) -> None:
        """The first way of the list that there is room for."""
        board, c, rooms = self.board, self.board.compiled, self.rooms
        group = int(c.group_of[j])
        for add_w, row, m, k in self.ways.get(group) or self._of(group, j):
            server = rooms.best(k, m) or (rooms.unused[k][0] if rooms.unused[k] else None)
            if server is None or not board.quota_allows(j, m):
                continue
            power_w = float(c.net_w[row]) + board.use_power_w([server])
            if add_w + c.move_w[j] >= c.wait_w[j] or board.power_w + power_w > board.cap_w:
                continue
            rooms.drop(server)
            board.put([Seat(j, ((server, tuple(sorted(board.free[server])[:m])),), row)])
            rooms.add(server)
            return
