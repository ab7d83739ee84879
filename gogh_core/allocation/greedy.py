"""The greedy plan: who runs stays where it can, the rest goes where it adds the least watts.

It is the incumbent before anything is solved and the last resort when nothing can be.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gogh_core.allocation.board import Board
from gogh_core.allocation.compiled import Compiled, Seat, Seats, need_of

__all__ = ["Infeasible", "greedy_seats", "keep_running", "seat_greedily", "stay_seats"]

_SCANNED = 60
"""Pairs looked at for one job: beyond the cheapest few dozen a pair hardly ever wins."""


class Infeasible(Exception):
    """Pins, drains or the cap cannot be kept; with every reason."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__("; ".join(reasons))


@dataclass(slots=True)
class _Way:
    """A way to seat one job: watts it adds, and how."""

    add_w: float
    power_w: float
    row: int
    server: str | None = None
    gpus: int = 0
    join: Seat | None = None


class _Rooms:
    """Servers by free GPUs, so that the best fit is found without a scan."""

    def __init__(self, board: Board, compiled: Compiled) -> None:
        self.board, self.compiled = board, compiled
        self.used: list[dict[int, list[str]]] = [{} for _ in compiled.kinds]
        self.unused: list[list[str]] = [[] for _ in compiled.kinds]
        for kind in compiled.kinds:
            for server in kind.servers:
                self.add(server)

    def add(self, server: str) -> None:
        kind = self.compiled.kind_of[server]
        if self.board.in_use(server):
            insort(self.used[kind].setdefault(len(self.board.free[server]), []), server)
        else:
            insort(self.unused[kind], server)

    def drop(self, server: str) -> None:
        kind = self.compiled.kind_of[server]
        if self.board.in_use(server):
            self.used[kind][len(self.board.free[server])].remove(server)
        else:
            self.unused[kind].remove(server)

    def best(self, kind: int, gpus: int) -> str | None:
        """The server in use with the least room that is enough."""
        rooms = self.used[kind]
        for room in range(gpus, self.compiled.kinds[kind].size + 1):
            if rooms.get(room):
                return rooms[room][0]
        return None


def keep_running(board: Board) -> None:
    """Seat the running jobs that can stay where they are, with whom they are; pinned first."""
    c = board.compiled
    seats = _as_they_are(c)
    order = sorted(seats, key=lambda j: (not c.problem.jobs[j].pinned, -c.wait_w[j], j))
    done: set[int] = set()
    for j in order:
        if j in done:
            continue
        # Jobs that share are seated together, however long the chain of spread jobs is.
        unit, front = {j}, [j]
        while front:
            for seat in seats[front.pop()]:
                if seat.partner >= 0 and seat.partner not in unit:
                    unit.add(seat.partner)
                    front.append(seat.partner)
        done |= unit
        together = [seat for member in sorted(unit) for seat in seats[member]]
        if _allowed(board, together):
            board.put(together)
            continue
        for member in sorted(unit, key=lambda m: (not c.problem.jobs[m].pinned, -c.wait_w[m], m)):
            alone = None if c.spread[member] else _stay_alone(c, member)
            if alone is not None and _allowed(board, alone):
                board.put(alone)


def _as_they_are(c: Compiled) -> dict[int, list[Seat]]:
    """Seats of everybody who can go on as now; who cannot is left out and frees its partner."""
    alive = {j for j in range(len(c.cls)) if c.running[j] and c.stay_of(j) is not None}
    rank = {j: (not c.problem.jobs[j].pinned, -c.wait_w[j], j) for j in alive}
    users: dict[Any, list[int]] = {}
    for j in sorted(alive):
        for gpu in c.problem.jobs[j].place:
            users.setdefault(gpu, []).append(j)
    seats: dict[int, list[Seat]] = {}
    todo = set(alive)
    while todo:
        drop: set[int] = set()
        for j in sorted(todo):
            made, worse = _as_it_is(c, j, users, rank)
            if made is None:
                drop.add(worse)
            else:
                seats[j] = made
        todo = set()
        for j in sorted(drop):
            seats.pop(j, None)
            for gpu in c.problem.jobs[j].place:
                if j in users[gpu]:
                    users[gpu].remove(j)
                todo.update(users[gpu])
        if drop:
            todo |= {j for j in todo if j not in drop}
            todo -= drop
    return seats


def _as_it_is(
    c: Compiled, j: int, users: dict[Any, list[int]], rank: dict[int, Any]
) -> tuple[list[Seat] | None, int]:
    """A job's seats as it is now, or None and who has to go."""
    place = c.problem.jobs[j].place
    stay = c.stay_of(j)
    assert stay is not None
    mates = {i for gpu in place for i in users[gpu] if i != j}
    if not c.spread[j]:
        if not mates:
            return _stay_alone(c, j), j
        i = min(mates, key=lambda mate: rank[mate])
        worse = max(i, j, key=lambda job: rank[job])
        same = c.problem.jobs[i].place >= place if c.spread[i] else c.problem.jobs[i].place == place
        if len(mates) > 1 or not same or not c.consent(i, j):
            return None, worse
        row = best_pair(c, i, j, stay[0], stay[1])
        return (None, worse) if row is None else ([Seat(j, _here(c, j), row, i)], j)
    seats, total = [], 0.0
    here, usable, rows = _rows(c, j)
    got = c.side_got[here]
    for server, gpu in sorted(place):
        t = c.type_index[c.problem.server_of[server].gpu_type]
        others = [i for i in users[server, gpu] if i != j]
        if not others:
            fit = np.flatnonzero(usable & ~c.pair[rows] & (c.table.type_id[rows] == t))
            if not len(fit):
                return None, j
            row = int(rows[fit[np.lexsort((c.net_w[rows[fit]], -got[fit]))[0]]])
            seats.append(Seat(j, ((server, (gpu,)),), row))
        else:
            i = others[0]
            worse = max(i, j, key=lambda job: rank[job])
            whole = c.spread[i] or len(c.problem.jobs[i].place) == 1
            found = best_pair(c, i, j, t, 1) if whole and c.consent(i, j) else None
            if found is None:
                return None, worse
            row = found
            seats.append(Seat(j, ((server, (gpu,)),), row, i))
        first = c.table.class_a[row] == c.cls[j]
        total += float(c.table.throughput_a[row] if first else c.table.throughput_b[row])
    return (seats, j) if total >= need_of(c.required[j]) else (None, j)


def _allowed(board: Board, seats: list[Seat]) -> bool:
    c = board.compiled
    lead = [seat for seat in seats if seat.partner < 0 or seat.job < seat.partner]
    for seat in lead:
        for server, gpus in seat.slots:
            if not board.free[server].issuperset(gpus):
                return False
    power = sum(float(c.net_w[seat.row]) for seat in lead)
    power += board.use_power_w({server for seat in lead for server, _ in seat.slots})
    if board.power_w + power > board.cap_w:
        return False
    need: dict[int, int] = {}
    for seat in seats:
        owner = int(c.owner[seat.job])
        if owner >= 0:
            need[owner] = need.get(owner, 0) + len(seat.gpus)
    return all(board.quota_used[o] + n <= board.quota[o] for o, n in need.items())


def _here(c: Compiled, j: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((slot.server, slot.gpus) for slot in c.problem.jobs[j].at)


def _rows(c: Compiled, j: int) -> tuple[slice, Any, Any]:
    """(sides, usable, option rows) of a job."""
    here = c.sides(int(c.cls[j]))
    group = c.groups[c.group_of[j]]
    return here, group.usable, c.side_row[here]


def _stay_alone(c: Compiled, j: int) -> list[Seat] | None:
    stay = c.stay_of(j)
    assert stay is not None
    _, usable, rows = _rows(c, j)
    fit = usable & ~c.pair[rows]
    fit &= (c.table.type_id[rows] == stay[0]) & (c.table.gpus[rows] == stay[1])
    if not fit.any():
        return None
    found = rows[fit]
    return [Seat(j, _here(c, j), int(found[np.argmin(c.net_w[found])]))]


def best_pair(c: Compiled, i: int, j: int, gpu_type: int, gpus: int) -> int | None:
    """The cheapest option in which two jobs share GPUs of a type, or None."""
    table = c.table
    _, usable_i, rows_i = _rows(c, i)
    _, usable_j, rows_j = _rows(c, j)
    fit = usable_i & c.pair[rows_i]
    fit &= (table.type_id[rows_i] == gpu_type) & (table.gpus[rows_i] == gpus)
    other = int(c.cls[j])
    fit &= (table.class_a[rows_i] + table.class_b[rows_i]) == other + int(c.cls[i])
    fit &= (table.class_a[rows_i] == other) | (table.class_b[rows_i] == other)
    found = np.intersect1d(rows_i[fit], rows_j[usable_j])
    if not len(found):
        return None
    return int(found[np.argmin(c.net_w[found])])


def seat_greedily(
    board: Board,
    *,
    jobs: list[int] | None = None,
    sharing: bool = True,
    stop: Callable[[], bool] | None = None,
) -> None:
    """Seat jobs that have no seat: hardest first, each where it adds the least watts.

    Once `stop` says so the rest is seated quickly: alone, where options of its group cost least.
    """
    c = board.compiled
    rooms = _Rooms(board, c)
    waiting = jobs if jobs is not None else [j for j in range(len(c.cls)) if j not in board.seats]
    waiting = sorted(waiting, key=lambda j: (-c.wait_w[j], -_smallest(c, j), -c.required[j], j))
    alone: dict[tuple[int, int, int], list[Seat]] = {}
    for seats in board.seats.values():
        for seat in seats:
            if seat.partner < 0:
                _lone(c, alone, seat)
    hurry, quick = False, _Quick(board, rooms)
    for j in waiting:
        hurry = hurry or (stop is not None and stop())
        if not board.may_move(j):
            continue
        if hurry and not c.spread[j]:
            quick.seat(j)
            continue
        if c.spread[j]:
            _seat_spread(board, rooms, j)
            continue
        way = _best_way(board, rooms, alone, j, sharing)
        if way is None or way.add_w + c.move_w[j] >= c.wait_w[j]:
            continue
        _apply(board, rooms, alone, j, way)


class _Quick:
    """Seats gangs alone by a list that is made once for each group."""

    def __init__(self, board: Board, rooms: _Rooms) -> None:
        self.board, self.rooms = board, rooms
        self.ways: dict[int, list[tuple[float, int, int, int]]] = {}

    def _of(self, group: int, j: int) -> list[tuple[float, int, int, int]]:
        """(watts with a share of the server, row, GPUs, kind), cheapest first."""
        c = self.board.compiled
        _, usable, rows = _rows(c, j)
        found = []
        for row in rows[np.flatnonzero(usable & ~c.pair[rows])].tolist():
            m, t = int(c.table.gpus[row]), int(c.table.type_id[row])
            for k in _kinds_of(c, t):
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


def _lone(c: Compiled, alone: dict[tuple[int, int, int], list[Seat]], seat: Seat) -> None:
    row = seat.row
    key = (int(c.table.type_id[row]), int(c.table.gpus[row]), int(c.cls[seat.job]))
    alone.setdefault(key, []).append(seat)


def _smallest(c: Compiled, j: int) -> int:
    return 1 if c.spread[j] else min(c.problem.jobs[j].gpu_counts)


def _kinds_of(c: Compiled, gpu_type: int) -> list[int]:
    return [kind.index for kind in c.kinds if kind.gpu_type == gpu_type]


def _best_way(
    board: Board,
    rooms: _Rooms,
    alone: dict[tuple[int, int, int], list[Seat]],
    j: int,
    sharing: bool,
) -> _Way | None:
    c, table = board.compiled, board.compiled.table
    here, usable, rows = _rows(c, j)
    best: _Way | None = None

    def better(way: _Way) -> bool:
        return best is None or way.add_w < best.add_w

    surplus = float(c.surplus[j])
    singles = np.flatnonzero(usable & ~c.pair[rows])
    for s in singles[np.argsort(c.net_w[rows[singles]], kind="stable")]:
        row, got = int(rows[s]), float(c.side_got[here][s])
        m, t = int(table.gpus[row]), int(table.type_id[row])
        if not board.quota_allows(j, m):
            continue
        bonus = surplus * (got - c.required[j])
        if m > c.largest[t]:
            way = _whole_way(board, rooms, t, m, row, bonus)
            if way is not None and better(way) and board.power_w + way.power_w <= board.cap_w:
                best = way
            continue
        for k in _kinds_of(c, t):
            kind = c.kinds[k]
            if kind.size < m:
                continue
            server = rooms.best(k, m)
            extra_w = extra_power = 0.0
            if server is None and rooms.unused[k]:
                server = rooms.unused[k][0]
                extra_w, extra_power = kind.use_w, kind.power_w
            if server is None:
                continue
            power = float(c.net_w[row]) + extra_power
            # A new server is not charged in full: others will follow onto it.
            share = extra_w * m / kind.size
            way = _Way(float(c.net_w[row]) + share - bonus, power, row, server, m)
            if better(way) and board.power_w + power <= board.cap_w:
                best = way
    if sharing and c.job_realms[j]:
        pairs = np.flatnonzero(usable & c.pair[rows])
        scanned = 0
        for s in pairs[np.argsort(c.net_w[rows[pairs]], kind="stable")]:
            if scanned >= _SCANNED:
                break
            row = int(rows[s])
            a, b = int(table.class_a[row]), int(table.class_b[row])
            other = b if a == c.cls[j] else a
            key = (int(table.type_id[row]), int(table.gpus[row]), other)
            if not alone.get(key):
                continue
            scanned += 1
            way = _join_way(board, alone[key], j, row, int(c.side_no[here][s]))
            if way is not None and better(way) and board.power_w + way.power_w <= board.cap_w:
                best = way
    return best


def _join_way(board: Board, seats: list[Seat], j: int, row: int, side: int) -> _Way | None:
    c, table = board.compiled, board.compiled.table
    got = (table.throughput_a[row], table.throughput_b[row])
    if not board.quota_allows(j, int(table.gpus[row])):
        return None
    for seat in seats[:20]:
        i = seat.job
        theirs = float(got[0] if c.own[row] else got[1 - side])
        if c.spread[i] or theirs < need_of(c.required[i]) or not c.consent(i, j):
            continue
        before = table.throughput_a[seat.row]
        lost = float(c.surplus[i]) * (float(before) - theirs)
        bonus = float(c.surplus[j]) * (float(got[side]) - c.required[j])
        add = float(c.net_w[row] - c.net_w[seat.row])
        return _Way(add + lost - bonus, add, row, None, int(table.gpus[row]), seat)
    return None


def _whole_way(board: Board, rooms: _Rooms, t: int, m: int, row: int, bonus: float) -> _Way | None:
    servers = whole_servers(board, t, m)
    if servers is None:
        return None
    c = board.compiled
    kinds = [c.kinds[c.kind_of[server]] for server in servers]
    add = float(c.net_w[row]) + sum(kind.use_w for kind in kinds) - bonus
    power = float(c.net_w[row]) + sum(kind.power_w for kind in kinds)
    return _Way(add, power, row, None, m)


def whole_servers(board: Board, gpu_type: int, gpus: int) -> list[str] | None:
    """Empty servers whose GPUs add up to exactly that many, cheapest first, or None."""
    c = board.compiled
    empty = [
        server
        for kind in c.kinds
        if kind.gpu_type == gpu_type
        for server in kind.servers
        if not board.in_use(server)
    ]
    empty.sort(key=lambda s: (c.kinds[c.kind_of[s]].use_w / board.size[s], s))
    chosen: dict[int, list[str]] = {0: []}
    for server in empty:
        if gpus in chosen:
            break
        for total in sorted(chosen, reverse=True):
            reached = total + board.size[server]
            if reached <= gpus and reached not in chosen:
                chosen[reached] = [*chosen[total], server]
    return chosen.get(gpus)


def _apply(
    board: Board,
    rooms: _Rooms,
    alone: dict[tuple[int, int, int], list[Seat]],
    j: int,
    way: _Way,
) -> None:
    c = board.compiled
    if way.join is not None:
        old = way.join
        key = (int(c.table.type_id[old.row]), int(c.table.gpus[old.row]), int(c.cls[old.job]))
        alone[key].remove(old)
        board.take([old], keep_gpus=True)
        new = Seat(old.job, old.slots, way.row, j)
        # The GPUs stay taken, so the servers' watts are counted already.
        board.put([new, Seat(j, old.slots, way.row, old.job)])
        return
    if way.server is None:
        servers = whole_servers(board, int(c.table.type_id[way.row]), way.gpus)
        assert servers is not None
    else:
        servers = [way.server]
    for server in servers:
        rooms.drop(server)
    if way.server is None:
        slots = tuple((s, tuple(sorted(board.free[s]))) for s in servers)
    else:
        slots = ((way.server, tuple(sorted(board.free[way.server])[: way.gpus])),)
    seat = Seat(j, slots, way.row)
    board.put([seat])
    for server in servers:
        rooms.add(server)
    _lone(c, alone, seat)


def _seat_spread(board: Board, rooms: _Rooms, j: int) -> None:
    """Slots alone, the best throughput per watt first, until the requirement is reached."""
    c, table = board.compiled, board.compiled.table
    here, usable, rows = _rows(c, j)
    got = c.side_got[here]
    seats: list[Seat] = []
    total, added = 0.0, 0.0
    for _ in range(c.problem.jobs[j].max_gpus):
        best: tuple[float, int, str] | None = None
        left = max(float(c.required[j]) - total, 1e-9)
        for s in np.flatnonzero(usable & ~c.pair[rows] & (got > 0) | (usable & ~c.pair[rows])):
            row = int(rows[s])
            for k in _kinds_of(c, int(table.type_id[row])):
                kind = c.kinds[k]
                server = rooms.best(k, 1)
                extra = 0.0
                if server is None and rooms.unused[k]:
                    server, extra = rooms.unused[k][0], kind.use_w / kind.size
                if server is None:
                    continue
                rate = (float(c.net_w[row]) + extra) / max(min(float(got[s]), left), 1e-9)
                if best is None or rate < best[0]:
                    best = (rate, int(s), server)
        if best is None or not board.quota_allows(j, 1):
            break
        _, picked, server = best
        rooms.drop(server)
        before = board.power_w
        seat = Seat(j, ((server, (min(board.free[server]),)),), int(rows[picked]))
        board.put([seat])
        rooms.add(server)
        added += board.power_w - before
        seats.append(seat)
        total += float(got[picked])
        if total >= need_of(c.required[j]) or board.power_w > board.cap_w:
            break
    short = total < need_of(c.required[j]) or board.power_w > board.cap_w
    if seats and (short or added + c.move_w[j] >= c.wait_w[j] or not _moves_fit(board)):
        for seat in seats:
            server = seat.slots[0][0]
            rooms.drop(server)
            board.take([seat])
            rooms.add(server)


def _moves_fit(board: Board) -> bool:
    return len(board.moved) <= board.max_moves


def stay_seats(compiled: Compiled) -> Seats:
    """Everybody who can goes on as now, nobody starts; raises `Infeasible` like the greedy plan."""
    board = Board(compiled)
    keep_running(board)
    problem = compiled.problem
    reasons = []
    for j, job in enumerate(problem.jobs):
        if not job.pinned or j in board.seats:
            continue
        drained = sorted({s for s, _ in job.place if problem.server_of[s].drain})
        why = "a place where it cannot run as required"
        if drained:
            why = f"server {', '.join(drained)}, which is to be drained"
        reasons.append(f"job {job.id} is pinned to {why}")
    if board.power_w > board.cap_w * (1 + 1e-9):
        reasons.append(
            f"what has to be on draws {board.power_w:.0f} W, the cap is {board.cap_w:g} W"
        )
    if reasons:
        raise Infeasible(reasons)
    return board.seats


def greedy_seats(
    compiled: Compiled, *, sharing: bool = True, deadline: float | None = None
) -> Seats:
    """Seats of the greedy plan; raises `Infeasible` when pins or the cap cannot be kept."""
    kept = stay_seats(compiled)
    board = Board(compiled)
    for j in sorted(kept):
        for seat in kept[j]:
            if seat.partner < 0:
                board.put([seat])
            elif j < seat.partner:
                mate = next(s for s in kept[seat.partner] if s.partner == j and s.gpus == seat.gpus)
                board.put([seat, mate])
    stop = None if deadline is None else (lambda: time.monotonic() > deadline)
    seat_greedily(board, sharing=sharing, stop=stop)
    return board.seats
