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

from typing import Any

from gogh_core.allocation.compiled import Group
from gogh_core.allocation.rows import Place, Rows
from gogh_core.allocation.ways import Way, ways_of

__all__ = ["Master", "Place"]


class Master(Rows):
    """Makes the columns of one compiled problem."""

    def alone(self, group: Group, row: int, place: Place) -> bool:
        """A job of the group alone on new GPUs: it fills the one side of the option."""
        entries: dict[int, float] = {}
        cost = self._job(entries, group, int(self.c.table.gpus[row]), comes=True)
        entries[self.program.row(("slot", row, 0, -1))] = 1.0
        cost -= self._surplus(group.first, self.got(row, 0))
        added = self._add(("alone", group.index, row), cost, entries)
        return self.single(row, place) or added

    def single(self, row: int, place: Place) -> bool:
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
        self._slack(index, ("count", row))
        return self.count_rows[row]

    def count_way(self, group: int, way: Way) -> int:
        """The number of a way that is counted from now on, by a row and a column of its own."""
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
        self._slack(index, key)
        return len(self.ways) - 1

    def _slack(self, index: int, key: tuple[Any, ...]) -> None:
        """What is counted may miss its bounds, dearly."""
        for sign in (1.0, -1.0):
            self._add(("over", *key, sign), self._much(), {index: sign})

    def relax_cap(self) -> bool:
        """Let the cap be exceeded, dearly; False if there is none or it may be already.

        Where what has to be on exceeds it without any job, only jobs that draw less than idle GPUs
        can keep it: without this the first LP has no solution, and no prices to find such ways by.
        """
        if self.power_row < 0:
            return False
        return self._add(("over", "power"), self._much(0.5), {self.power_row: -1.0})

    def relax_gpus(self, kind: int) -> bool:
        """Let GPUs count as taken that nobody takes, dearly; False if they may already."""
        return self._add(("over", "gpus", kind), self._much(), {self.cap_rows[kind]: 1.0})

    def _much(self, part: float = 1.0) -> float:
        """More than any plan costs: a branch without a plan has a high price instead of none."""
        return part * (2 * abs(self.c.fixed_w) + 20 * float(self.c.wait_w.sum()) + 1e4)

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
