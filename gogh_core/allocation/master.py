"""The restricted master program: rows of the full problem, columns as far as they are generated.

One function adds one kind of row entry or column; the sentence of each constraint is the first
line of the function that makes it in `constraints.py`. A column says in `what` what it stands
for, so that a solution can be read back:

("on", kind)  ("taken", kind)  ("on_server", server)  ("wait", group)
("alone", group, row)                a group's job alone on new GPUs
("single", row, place)               the option itself, filled by those alone
("side", group, row, side, realm)    a group's job on one side of a shared option, on new GPUs
("pair", row, realm, place)          the shared option itself, its two sides filled by others
("stay", job, row)                   a running job alone where it is
("host", job, row, side, realm)      a running job where it is, with somebody who comes
("both", job, partner, row)          two that share where they are
("way", way)  ("over", way, sign)     how often a group goes a way (branched on), and its slack
("count", row)                       how often an option is used on new GPUs (branched on)
("bundle", group, items)             slots of a spread job; ("keep", job, items) where it is
A place is (kind,) or, for gangs larger than a server, the kinds of the whole servers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from gogh_core.allocation.compiled import Compiled, Group
from gogh_core.allocation.lp import Column, Program
from gogh_core.allocation.ways import Way, ways_of

__all__ = ["BIG_W", "Master"]

BIG_W = 1e8
"""Cost of leaving a pinned job out: above everything, so that it only happens if it must."""

Place = tuple[int, ...]


class Master:
    """Makes rows and columns of one compiled problem."""

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
            self._power(entries, kind.power_w)
            self.on_columns.append(len(self.program.columns))
            self._add(("on", kind.index), kind.use_w, entries, upper=float(len(kind.servers)))
        self.taken_columns: list[int] = []
        for kind in c.kinds:
            entries = {self.cap_rows[kind.index]: -1.0, self.room_rows[kind.index]: 1.0}
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

    # --- entries ---------------------------------------------------------------------------

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

    # --- columns ---------------------------------------------------------------------------

    def alone(self, group: Group, row: int, place: Place) -> bool:
        """A job of the group alone on new GPUs: it fills the one side of the option."""
        entries: dict[int, float] = {}
        cost = self._job(entries, group, int(self.c.table.gpus[row]), comes=True)
        entries[self.program.row(("slot", row, 0, -1))] = 1.0
        cost -= self._surplus(group.first, self.got(row, 0))
        added = self._add(("alone", group.index, row), cost, entries)
        return self._single(row, place) or added

    def _single(self, row: int, place: Place) -> bool:
        """An option for one job on new GPUs; `alone` columns fill it."""
        entries: dict[int, float] = {}
        cost = self._gpus(entries, row, place)
        entries[self.program.row(("slot", row, 0, -1))] = -1.0
        self._count(entries, row)
        return self._add(("single", row, place), cost, entries)

    def _count(self, entries: dict[int, float], row: int, number: float = 1.0) -> None:
        if row in self.count_rows:
            index = self.count_rows[row][0]
            entries[index] = entries.get(index, 0.0) + number

    def count_option(self, row: int) -> tuple[int, int]:
        """A row and a column that count how often an option is used on new GPUs."""
        if row in self.count_rows:
            return self.count_rows[row]
        index = self.program.row(("count", row))
        for column in self.program.columns:
            number = 0
            if column.what[0] in ("single", "pair") and column.what[1] == row:
                number = 1
            elif column.what[0] == "bundle":
                number = sum(item[0] == row and item[3] < 0 for item in column.what[2])
            if number:
                column.rows = (*column.rows, index)
                column.values = (*column.values, float(number))
        self._add(("count", row), 0.0, {index: -1.0})
        self.count_rows[row] = (index, len(self.program.columns) - 1)
        return self.count_rows[row]

    def count_way(self, group: int, way: Way) -> int:
        """The number of a way that is counted from now on, by a row and a column of its own.

        Its slack costs more than any plan, so that a branch without a plan has a high price
        instead of none.
        """
        key = (group, way)
        if key in self.way_rows:
            return self.way_rows[key][0]
        index = self.program.row(("way", *key))
        for column in self.program.columns:
            number = ways_of(self.c, column.what).get(key, 0)
            if number:
                column.rows = (*column.rows, index)
                column.values = (*column.values, float(number))
        self._add(("way", *key), 0.0, {index: -1.0})
        self.way_rows[key] = (len(self.ways), index, len(self.program.columns) - 1)
        self.ways.append(key)
        much = 2 * abs(self.c.fixed_w) + 20 * float(self.c.wait_w.sum()) + 1e4
        for sign in (1.0, -1.0):
            self._add(("over", *key, sign), much, {index: sign})
        return len(self.ways) - 1

    def side(self, group: Group, row: int, side: int, realm: int) -> bool:
        """A job of the group on one side of a shared option on new GPUs."""
        entries: dict[int, float] = {}
        cost = self._job(entries, group, int(self.c.table.gpus[row]), comes=True)
        entries[self._slot(row, side, realm)] = 1.0
        cost -= self._surplus(group.first, self.got(row, side))
        if self.c.own[row]:
            side = 0
            own = self.self_rows.get((row, realm), {}).get(group.index)
            if own is not None:
                entries[own] = 1.0
        added = self._add(("side", group.index, row, side, realm), cost, entries)
        if added and self.c.own[row]:
            sides = self.slot_sides.setdefault((row, realm), {})
            sides.setdefault(group.index, {})[len(self.program.columns) - 1] = 1
        return added

    def _with_itself(self, entries: dict[int, float], row: int, realm: int) -> None:
        for own in self.self_rows.get((row, realm), {}).values():
            entries[own] = entries.get(own, 0.0) - 1.0

    def _note_user(self, added: bool, row: int, realm: int) -> bool:
        if added and self.c.own[row]:
            index = len(self.program.columns) - 1
            users = self.slot_users.setdefault((row, realm), {})
            users[index] = users.get(index, 0) + 1
        return added

    def forbid_itself(self, row: int, realm: int, group: int) -> int:
        """No job is its own partner: it fills its class with itself at most once a pair."""
        own = self.program.row(("self", row, realm, group), -float("inf"), 0.0)
        self.self_rows.setdefault((row, realm), {})[group] = own
        changed = {i: float(n) for i, n in self.slot_sides[row, realm][group].items()}
        changed |= {i: -float(n) for i, n in self.slot_users.get((row, realm), {}).items()}
        for index, value in changed.items():
            column = self.program.columns[index]
            column.rows = (*column.rows, own)
            column.values = (*column.values, value)
        return own

    def pair(self, row: int, realm: int, place: Place) -> bool:
        """A shared option on new GPUs; its sides are filled by `side` columns."""
        entries: dict[int, float] = {}
        cost = self._gpus(entries, row, place)
        for side in (0, 1):
            slot = self._slot(row, side, realm)
            entries[slot] = entries.get(slot, 0.0) - 1.0
        self._with_itself(entries, row, realm)
        self._count(entries, row)
        return self._note_user(self._add(("pair", row, realm, place), cost, entries), row, realm)

    def stay(self, group: Group, row: int) -> bool:
        """A running job alone where it is."""
        entries: dict[int, float] = {}
        j = group.first
        self._job(entries, group, int(self.c.table.gpus[row]), comes=False)
        cost = self._stay(entries, j, row) - self._surplus(j, self.got(row, 0))
        return self._add(("stay", j, row), cost, entries)

    def host(self, group: Group, row: int, side: int, realm: int) -> bool:
        """A running job where it is, with somebody who comes to the other side."""
        entries: dict[int, float] = {}
        j = group.first
        self._job(entries, group, int(self.c.table.gpus[row]), comes=False)
        cost = self._stay(entries, j, row) - self._surplus(j, self.got(row, side))
        entries[self._slot(row, 1 - side, realm)] = -1.0
        self._with_itself(entries, row, realm)
        what = ("host", j, row, side, realm)
        return self._note_user(self._add(what, cost, entries), row, realm)

    def both(self, i: int, j: int, row: int, sides: tuple[int, int]) -> bool:
        """Two running jobs that share where they are."""
        c = self.c
        entries: dict[int, float] = {}
        gpus = int(c.table.gpus[row])
        groups = [c.groups[c.group_of[i]], c.groups[c.group_of[j]]]
        for group in groups:
            before = dict(entries)
            self._job(entries, group, gpus, comes=False)
            owner = int(c.owner[group.first])
            if owner >= 0 and self.quota_rows[owner] in before:
                entries[self.quota_rows[owner]] += before[self.quota_rows[owner]]
        cost = self._stay(entries, i, row)
        cost -= self._surplus(i, self.got(row, sides[0])) + self._surplus(
            j, self.got(row, sides[1])
        )
        return self._add(("both", min(i, j), max(i, j), row), cost, entries)

    def bundle(self, group: Group, items: tuple[tuple[int, int, int, int], ...]) -> bool:
        """Slots of a spread job on new GPUs; an item is (row, side, kind or -1, realm or -1)."""
        c, j = self.c, group.first
        entries: dict[int, float] = {}
        cost = self._job(entries, group, len(items), comes=True)
        total = 0.0
        for row, side, kind, realm in items:
            total += self.got(row, side)
            if realm < 0:
                cap = self.cap_rows[kind]
                entries[cap] = entries.get(cap, 0.0) + 1.0
                self._power(entries, float(c.net_w[row]))
                self._count(entries, row)
                cost += float(c.net_w[row])
            else:
                slot = self._slot(row, side, realm)
                entries[slot] = entries.get(slot, 0.0) + 1.0
                own = self.self_rows.get((row, realm), {}).get(group.index)
                if own is not None:
                    entries[own] = entries.get(own, 0.0) + 1.0
        cost -= self._surplus(j, total)
        added = self._add(("bundle", group.index, items), cost, entries)
        for row, _, _, realm in items if added else ():
            if realm >= 0 and c.own[row]:
                sides = self.slot_sides.setdefault((row, realm), {}).setdefault(group.index, {})
                index = len(self.program.columns) - 1
                sides[index] = sides.get(index, 0) + 1
        return added

    def keep(self, group: Group, items: tuple[tuple[int, int, str, int, int], ...]) -> bool:
        """A spread job where it is; an item is (row, side, server, GPU, realm or -1 or -2).

        Realm -1 is alone; -2 is with the job that shares the GPU now and stays too, which is
        tied by a row of that GPU and option.
        """
        c, j = self.c, group.first
        entries: dict[int, float] = {}
        self._job(entries, group, len(items), comes=False)
        cost, total = 0.0, 0.0
        for row, side, server, gpu, realm in items:
            total += self.got(row, side)
            if realm == -2:
                tie = self.program.row(("tie", server, gpu, row, 0 if c.own[row] else side))
                if c.own[row]:
                    tie = self.program.row(
                        ("tie", server, gpu, row, self._first_user(server, gpu, j))
                    )
                entries[tie] = 1.0
                continue
            cap = self.cap_rows[c.kind_of[server]]
            entries[cap] = entries.get(cap, 0.0) + 1.0
            cell_index = c.cell_at[server, gpu]
            cell = self.cell_rows[cell_index]
            entries[cell] = entries.get(cell, 0.0) + 1.0 / len(c.cells[cell_index].gpus)
            self._power(entries, float(c.net_w[row]))
            cost += float(c.net_w[row])
            if realm >= 0:
                slot = self._slot(row, 1 - side, realm)
                entries[slot] = entries.get(slot, 0.0) - 1.0
                self._with_itself(entries, row, realm)
        cost -= self._surplus(j, total)
        added = self._add(("keep", j, items), cost, entries)
        for row, _, _, _, realm in items:
            if realm >= 0:
                self._note_user(added, row, realm)
        return added

    def _first_user(self, server: str, gpu: int, j: int) -> int:
        """Which side of a class paired with itself the job takes: the lower number is first."""
        return 0 if min(self.c.cells[self.c.cell_at[server, gpu]].jobs) == j else 1

    def tie(self, row: int, server: str, gpu: int) -> bool:
        """A shared option on a GPU where both jobs stay; its sides are tied to theirs."""
        c = self.c
        entries = {
            self.program.row(("tie", server, gpu, row, 0)): -1.0,
            self.program.row(("tie", server, gpu, row, 1)): -1.0,
            self.cap_rows[c.kind_of[server]]: 1.0,
        }
        cell_index = c.cell_at[server, gpu]
        entries[self.cell_rows[cell_index]] = 1.0 / len(c.cells[cell_index].gpus)
        self._power(entries, float(c.net_w[row]))
        return self._add(("tie", row, server, gpu), float(c.net_w[row]), entries)
