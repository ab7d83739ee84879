"""The rows of the master program, and what a column puts into them.

Rows are made once from the problem; columns come later (`master.py`). The sentence of each
constraint is the first line of the function that makes it in `constraints.py`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from gogh_core.allocation.compiled import Compiled, Group
from gogh_core.allocation.lp import Column, Program
from gogh_core.allocation.ways import Way, ways_of

__all__ = ["Place", "Rows"]

BIG_W = 1e8
"""Cost of leaving a pinned job out: above everything, so that it only happens if it must."""

Place = tuple[int, ...]
"""Kinds of servers: one, or those of the whole servers of a larger gang."""


class Rows:
    """The program with its rows, and entries of columns in them."""

    def __init__(self, compiled: Compiled) -> None:
        self.c = c = compiled
        self.program = Program()
        self.self_rows: dict[tuple[int, int], dict[int, int]] = {}
        self.count_rows: dict[int, tuple[int, int]] = {}
        """Options that are branched on: row and column of their count."""
        self.ways: list[tuple[int, Way]] = []
        """(group, way) that are branched on, by number."""
        self.way_rows: dict[tuple[int, Way], tuple[int, int, int]] = {}
        """Their number, row and column."""
        self.slot_users: dict[tuple[int, int], dict[int, int]] = {}
        """Pairs and hosts of a class with itself by (row, realm): column, how often."""
        self.slot_sides: dict[tuple[int, int], dict[int, dict[int, int]]] = {}
        """Sides of it by (row, realm): group, column, how often."""
        problem = c.problem
        self.quota_rows: dict[int, int] = {}
        self.job_rows = [
            self.program.row(("job", g.index), float(g.count), float(g.count)) for g in c.groups
        ]
        self.cap_rows = [self.program.row(("gpus", kind.index)) for kind in c.kinds]
        self.room_rows = [
            self.program.row(("room", kind.index), -float("inf"), 0.0) for kind in c.kinds
        ]
        self.empty_rows = {
            kind.index: self.program.row(("empty", kind.index), -float("inf"), 0.0)
            for kind in c.kinds
            if min(kind.power_w, kind.use_w) < 0
        }
        self.use_rows = [
            self.program.row(("servers", kind.index), -float("inf"), float(len(kind.servers)))
            for kind in c.kinds
        ]
        occupied = sorted({cell.server for cell in c.cells})
        kinds_occupied = sorted({c.kind_of[server] for server in occupied})
        self.occ_rows = {
            k: self.program.row(("occupied", k), -float("inf"), 0.0) for k in kinds_occupied
        }
        self.cell_rows = [
            self.program.row(("cell", index), -float("inf"), 0.0) for index in range(len(c.cells))
        ]
        for index, owner in enumerate(c.owners):
            key = ("quota", index)
            self.quota_rows[index] = self.program.row(
                key, -float("inf"), float(problem.quotas[owner])
            )
        self.moves_row = self.power_row = -1
        if problem.max_moves is not None:
            self.moves_row = self.program.row(("moves",), -float("inf"), float(problem.max_moves))
        if problem.power_cap_w is not None:
            room = problem.power_cap_w - c.fixed_power_w
            self.power_row = self.program.row(("power",), -float("inf"), room)
        self.on_columns: list[int] = []
        for kind in c.kinds:
            entries = {
                self.room_rows[kind.index]: -float(kind.size),
                self.use_rows[kind.index]: 1.0,
            }
            if kind.index in self.occ_rows:
                entries[self.occ_rows[kind.index]] = -1.0
            if kind.index in self.empty_rows:
                entries[self.empty_rows[kind.index]] = 1.0
            self._power(entries, kind.power_w)
            self.on_columns.append(len(self.program.columns))
            self._add(("on", kind.index), kind.use_w, entries, upper=float(len(kind.servers)))
        self.taken_columns: list[int] = []
        for kind in c.kinds:
            entries = {self.cap_rows[kind.index]: -1.0, self.room_rows[kind.index]: 1.0}
            if kind.index in self.empty_rows:
                entries[self.empty_rows[kind.index]] = -1.0
            self.taken_columns.append(len(self.program.columns))
            self._add(("taken", kind.index), 0.0, entries)
        cells_by_server: dict[str, list[int]] = {}
        for index, cell in enumerate(c.cells):
            cells_by_server.setdefault(cell.server, []).append(index)
        self.server_columns: dict[str, int] = {}
        for server in occupied:
            entries = {self.occ_rows[c.kind_of[server]]: 1.0}
            for cell_index in cells_by_server[server]:
                entries[self.cell_rows[cell_index]] = -1.0
            self.server_columns[server] = len(self.program.columns)
            self._add(("on_server", server), 0.0, entries, upper=1.0)
        self.wait_columns = []
        for group in c.groups:
            cost = float(c.wait_w[group.first])
            if problem.jobs[group.first].pinned:
                cost = BIG_W
            self.wait_columns.append(len(self.program.columns))
            self._add(("wait", group.index), cost, {self.job_rows[group.index]: 1.0})

    def _add(
        self,
        what: tuple[Any, ...],
        cost: float,
        entries: dict[int, float],
        upper: float = float("inf"),
    ) -> bool:
        if self.way_rows:
            for key, number in ways_of(self.c, what).items():
                if key in self.way_rows:
                    entries[self.way_rows[key][1]] = float(number)
        return self.program.add(Column(cost, tuple(entries), tuple(entries.values()), what, upper))

    def _power(self, entries: dict[int, float], watts: float) -> None:
        if self.power_row >= 0 and watts:
            entries[self.power_row] = entries.get(self.power_row, 0.0) + watts

    def _job(self, entries: dict[int, float], group: Group, gpus: int, *, comes: bool) -> float:
        """A job's own part: its row, its owner's quota, its move; returns what the move costs."""
        c, j = self.c, group.first
        entries[self.job_rows[group.index]] = 1.0
        owner = int(c.owner[j])
        if owner >= 0:
            entries[self.quota_rows[owner]] = float(gpus)
        if comes and c.running[j]:
            if self.moves_row >= 0:
                entries[self.moves_row] = 1.0
            return float(c.move_w[j])
        return 0.0

    def _gpus(self, entries: dict[int, float], row: int, place: Place) -> float:
        """GPUs of a place: of a kind's servers in use, or whole servers of their own."""
        c = self.c
        gpus = int(c.table.gpus[row])
        if gpus <= c.largest[c.table.type_id[row]]:
            entries[self.cap_rows[place[0]]] = float(gpus)
            self._power(entries, float(c.net_w[row]))
            return float(c.net_w[row])
        cost, power = float(c.net_w[row]), float(c.net_w[row])
        for k, number in Counter(place).items():
            entries[self.use_rows[k]] = float(number)
            cost += number * c.kinds[k].use_w
            power += number * c.kinds[k].power_w
        self._power(entries, power)
        return cost

    def _stay(self, entries: dict[int, float], j: int, row: int) -> float:
        """GPUs where a job is: of its server's kind, on the cells it holds."""
        c = self.c
        servers = sorted({server for server, _ in c.problem.jobs[j].place})
        cost = self._gpus(entries, row, tuple(c.kind_of[server] for server in servers))
        if int(c.table.gpus[row]) <= c.largest[c.table.type_id[row]]:
            for cell in c.cells_of[j]:
                entries[self.cell_rows[cell]] = 1.0
        return cost

    def _slot(self, row: int, side: int, realm: int) -> int:
        return self.program.row(("slot", row, 0 if self.c.own[row] else side, realm))

    def _surplus(self, j: int, got: float) -> float:
        c = self.c
        return float(c.surplus[j]) * (got - float(c.required[j]))

    def got(self, row: int, side: int) -> float:
        """Throughput of a side."""
        table = self.c.table
        return float(table.throughput_a[row] if side == 0 else table.throughput_b[row])
