"""The greedy plan: who runs stays where it can, the rest goes where it adds the least watts.

It is the incumbent before anything is solved and the last resort when nothing can be.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.board import Board
from gogh_core.allocation.compiled import Compiled, Seat, Seats, need_of
from gogh_core.allocation.effort import Effort, work_of_greedy
from gogh_core.allocation.quick import Quick
from gogh_core.allocation.room import Rooms, whole_servers
from gogh_core.allocation.staying import stay_seats

__all__ = ["greedy_seats", "seat_greedily"]

Ints = npt.NDArray[np.int64]
_SCANNED = 60
"""Pairs looked at for one job: beyond the cheapest few dozen a pair hardly ever wins."""


@dataclass(slots=True)
class _Way:
    """A way to seat one job: watts it adds, and how."""

    add_w: float
    power_w: float
    row: int
    server: str | None = None
    gpus: int = 0
    join: Seat | None = None


class _Alone:
    """Who is alone on GPUs and could be joined, by GPU type, number of GPUs and class."""

    def __init__(self, c: Compiled) -> None:
        self.c = c
        self.sizes = int(c.table.gpus.max(initial=0)) + 1
        self.seats: dict[int, list[Seat]] = {}
        self.open = np.zeros(len(c.idle) * self.sizes * len(c.table.classes), dtype=bool)

    def keys(self, rows: Any, cls: Any) -> Any:
        """Where somebody of a class by an option is found."""
        table = self.c.table
        place = table.type_id[rows] * self.sizes + table.gpus[rows]
        return place * len(table.classes) + cls

    def add(self, seat: Seat) -> None:
        """Somebody who could be joined from now on."""
        key = int(self.keys(seat.row, self.c.cls[seat.job]))
        self.seats.setdefault(key, []).append(seat)
        self.open[key] = True

    def remove(self, seat: Seat) -> None:
        """Somebody who has been joined."""
        key = int(self.keys(seat.row, self.c.cls[seat.job]))
        self.seats[key].remove(seat)
        self.open[key] = bool(self.seats[key])

    def joinable(self, rows: Ints, cls: int) -> tuple[Ints, Ints]:
        """Of these pairs of a class those whose other side is alone somewhere, and its keys."""
        table = self.c.table
        other = np.where(table.class_a[rows] == cls, table.class_b[rows], table.class_a[rows])
        keys = self.keys(rows, other)
        found = np.flatnonzero(self.open[keys])
        return found, keys[found]


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
    rooms = Rooms(board, c)
    waiting = jobs if jobs is not None else [j for j in range(len(c.cls)) if j not in board.seats]
    waiting = sorted(waiting, key=lambda j: (-c.wait_w[j], -_smallest(c, j), -c.required[j], j))
    alone = _Alone(c)
    for seats in board.seats.values():
        for seat in seats:
            if seat.partner < 0:
                alone.add(seat)
    hurry, quick = False, Quick(board, rooms)
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


def _smallest(c: Compiled, j: int) -> int:
    return 1 if c.spread[j] else min(c.problem.jobs[j].gpu_counts)


def _best_way(
    board: Board,
    rooms: Rooms,
    alone: _Alone,
    j: int,
    sharing: bool,
) -> _Way | None:
    c, table = board.compiled, board.compiled.table
    here, usable, rows = c.rows_of(j)
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
        for k in c.kinds_with(t):
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
        found, keys = alone.joinable(rows[pairs], int(c.cls[j]))
        pairs = pairs[found]
        for at in np.argsort(c.net_w[rows[pairs]], kind="stable")[:_SCANNED].tolist():
            s = pairs[at]
            row, side = int(rows[s]), int(c.side_no[here][s])
            way = _join_way(board, alone.seats[int(keys[at])], j, row, side)
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


def _whole_way(board: Board, rooms: Rooms, t: int, m: int, row: int, bonus: float) -> _Way | None:
    servers = whole_servers(board, t, m)
    if servers is None:
        return None
    c = board.compiled
    kinds = [c.kinds[c.kind_of[server]] for server in servers]
    add = float(c.net_w[row]) + sum(kind.use_w for kind in kinds) - bonus
    power = float(c.net_w[row]) + sum(kind.power_w for kind in kinds)
    return _Way(add, power, row, None, m)


def _apply(
    board: Board,
    rooms: Rooms,
    alone: _Alone,
    j: int,
    way: _Way,
) -> None:
    c = board.compiled
    if way.join is not None:
        old = way.join
        alone.remove(old)
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
    alone.add(seat)


def _seat_spread(board: Board, rooms: Rooms, j: int) -> None:
    """Slots alone, the best throughput per watt first, until the requirement is reached."""
    c, table = board.compiled, board.compiled.table
    here, usable, rows = c.rows_of(j)
    got = c.side_got[here]
    seats: list[Seat] = []
    total, added = 0.0, 0.0
    for _ in range(c.problem.jobs[j].max_gpus):
        best: tuple[float, int, str] | None = None
        left = max(float(c.required[j]) - total, 1e-9)
        for s in np.flatnonzero(usable & ~c.pair[rows] & (got > 0) | (usable & ~c.pair[rows])):
            row = int(rows[s])
            for k in c.kinds_with(int(table.type_id[row])):
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


def greedy_seats(
    compiled: Compiled,
    *,
    sharing: bool = True,
    most: int | None = None,
    effort: Effort | None = None,
    kept: Seats | None = None,
) -> Seats:
    """Seats of the greedy plan; raises `Infeasible` when pins or the cap cannot be kept.

    After `most` jobs, or when the effort is over, the rest is seated quickly. `kept` is who stays
    where, if that is known already.
    """
    kept = stay_seats(compiled) if kept is None else kept
    board = Board(compiled)
    for j in sorted(kept):
        for seat in kept[j]:
            if seat.partner < 0:
                board.put([seat])
            elif j < seat.partner:
                mate = next(s for s in kept[seat.partner] if s.partner == j and s.gpus == seat.gpus)
                board.put([seat, mate])
    asked = itertools.count()

    each = work_of_greedy(len(compiled.net_w))

    def stop() -> bool:
        if effort is not None:
            effort.spend(each)
        late = effort is not None and effort.over()
        return (most is not None and next(asked) >= most) or late

    seat_greedily(board, sharing=sharing, stop=stop)
    return board.seats
