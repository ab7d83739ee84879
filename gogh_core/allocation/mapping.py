"""From counts to servers and GPUs: who stays keeps its place, the rest is best fit decreasing.

Jobs of a group are the same to the planner, so any of them may take any of the group's columns.
What does not fit because free GPUs are scattered is left over for the greedy rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gogh_core.allocation.board import Board
from gogh_core.allocation.compiled import Compiled, Seat, Seats, need_of
from gogh_core.allocation.greedy import seat_greedily
from gogh_core.allocation.lp import Program
from gogh_core.allocation.room import make_room, whole_servers

__all__ = ["map_counts"]


@dataclass(slots=True)
class _Item:
    """Something that needs GPUs on one server of a kind: one job or two."""

    row: int
    kinds: tuple[int, ...]
    jobs: tuple[int, ...]


class _Pools:
    """Jobs by group, and jobs waiting for a partner by side."""

    def __init__(self, c: Compiled) -> None:
        self.left = {g.index: list(reversed(g.jobs)) for g in c.groups}
        self.sides: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        self._group_of = c.group_of

    def claim(self, *jobs: int) -> bool:
        """Take these very jobs; False, and none is taken, where one of them is taken already."""
        groups = [self.left[int(self._group_of[job])] for job in jobs]
        if any(job not in left for job, left in zip(jobs, groups, strict=True)):
            return False
        for job, left in zip(jobs, groups, strict=True):
            left.remove(job)
        return True

    def take(self, group: int, number: int) -> list[int]:
        """So many jobs of a group, or as many as are left: rounding may count a job twice."""
        left = self.left[group]
        return [left.pop() for _ in range(min(number, len(left)))]


def map_counts(
    c: Compiled,
    program: Program,
    counts: Mapping[int, int],
    *,
    fill: bool = True,
    tidy: bool = False,
    stop: Callable[[], bool] | None = None,
) -> Seats:
    """Seats for a solution in counts of columns.

    `fill` seats who is left over greedily, in a hurry once `stop` says so; `tidy` moves some who
    stay where a gang finds no room.
    """
    board = Board(c)
    pools = _Pools(c)
    items: list[_Item] = []
    hosts: list[tuple[int, int, int, int]] = []
    loose: dict[int, list[tuple[int, int, int, int]]] = {}
    keeps: list[tuple[int, tuple[tuple[int, int, str, int, int], ...]]] = []
    pairs: list[tuple[int, int, tuple[int, ...], int]] = []
    singles: list[tuple[int, tuple[int, ...], int]] = []
    for index in sorted(counts):
        what, number = program.columns[index].what, counts[index]
        if number <= 0:
            continue
        if what[0] == "alone":
            pools.sides[what[2], 0, -1].extend(pools.take(what[1], number))
        elif what[0] == "single":
            singles.append((what[1], what[2], number))
        elif what[0] == "side":
            _, group, row, side, realm = what
            pools.sides[row, side, realm].extend(pools.take(group, number))
        elif what[0] == "pair":
            pairs.append((what[1], what[2], what[3], number))
        elif what[0] == "stay":
            if pools.claim(what[1]):
                board.put([Seat(what[1], _at(c, what[1]), what[2])])
        elif what[0] == "both":
            _, i, j, row = what
            if pools.claim(i, j):
                board.put([Seat(i, _at(c, i), row, j), Seat(j, _at(c, i), row, i)])
        elif what[0] == "host":
            hosts += [what[1:]] if pools.claim(what[1]) else []
        elif what[0] == "bundle":
            for job in pools.take(what[1], number):
                loose[job] = list(what[2])
        elif what[0] == "keep":
            keeps += [(what[1], what[2])] if pools.claim(what[1]) else []
    for j, bundle in loose.items():
        for row, side, _, realm in bundle:
            if realm >= 0:
                pools.sides[row, 0 if c.own[row] else side, realm].append(j)
    for j, row, side, realm in hosts:
        other = 0 if c.own[row] else 1 - side
        mate = _take(pools.sides[row, other, realm], j)
        here = _at(c, j)
        if mate is not None:
            board.put([Seat(j, here, row, mate), Seat(mate, here, row, j)])
        elif c.lone[side][row] >= 0:
            board.put([Seat(j, here, int(c.lone[side][row]))])
    _put_keeps(c, board, pools, keeps)
    for row, realm, place, number in pairs:
        for _ in range(number):
            two = _two(c, pools, row, realm)
            if two is not None:
                items.append(_Item(row, place, two))
    items.extend(_across(c, pools))
    for row, place, number in singles:
        pool = pools.sides[row, 0, -1]
        items.extend(_Item(row, place, (pool.pop(),)) for _ in range(min(number, len(pool))))
    for j, bundle in loose.items():
        items.extend(_Item(row, (kind,), (j,)) for row, _, kind, realm in bundle if realm < 0)
    _pack(c, board, items, tidy)
    _drop_short(c, board)
    if fill:
        seat_greedily(board, stop=stop)
    return board.seats


def _at(c: Compiled, j: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((slot.server, slot.gpus) for slot in c.problem.jobs[j].at)


def _take(pool: list[int], other: int) -> int | None:
    """Somebody else than `other` from a pool."""
    for at in range(len(pool) - 1, -1, -1):
        if pool[at] != other:
            return pool.pop(at)
    return None


def _two(c: Compiled, pools: _Pools, row: int, realm: int) -> tuple[int, int] | None:
    """Two different jobs for a pair; the most frequent first, so that none is left with itself."""
    if not c.own[row]:
        first, second = pools.sides[row, 0, realm], pools.sides[row, 1, realm]
        if not first or not second:
            return None
        return first.pop(), second.pop()
    pool = pools.sides[row, 0, realm]
    if len(pool) < 2:
        return None
    often = max(sorted(set(pool)), key=pool.count)
    mate = _take(pool, often)
    if mate is None:
        return None
    pool.remove(often)
    return often, mate


def _across(c: Compiled, pools: _Pools) -> list[_Item]:
    """Who is left on a side: with somebody of another circle who consents, else alone."""
    left: dict[int, tuple[list[int], list[int]]] = {}
    for (row, side, realm), pool in sorted(pools.sides.items()):
        if realm >= 0 and pool and int(c.table.gpus[row]) <= c.largest[c.table.type_id[row]]:
            left.setdefault(row, ([], []))[side].extend(pool)
    found = []
    for row, (first, second) in left.items():
        kinds = [k.index for k in c.kinds if k.gpu_type == c.table.type_id[row]]
        others = first if c.own[row] else second
        if not kinds:
            continue
        lone: list[tuple[int, int]] = []
        while first:
            i = first.pop()
            mates = [j for j in others if j != i and c.consent(i, j)]
            if mates:
                others.remove(mates[0])
                found.append(_Item(row, (kinds[0],), (i, mates[0])))
            else:
                lone.append((0, i))
        lone += [(1, j) for j in second]
        found += [
            _Item(int(c.lone[side][row]), (kinds[0],), (j,))
            for side, j in lone
            if c.lone[side][row] >= 0
        ]
    return found


def _put_keeps(
    c: Compiled,
    board: Board,
    pools: _Pools,
    keeps: list[tuple[int, tuple[tuple[int, int, str, int, int], ...]]],
) -> None:
    """Spread jobs (and who shares with them) that stay where they are."""
    tied: dict[tuple[str, int, int], int] = {}
    for j, bundle in keeps:
        for row, side, server, gpu, realm in bundle:
            slots = ((server, (gpu,)),)
            if realm == -2:
                mate = tied.pop((server, gpu, row), None)
                if mate is None:
                    tied[server, gpu, row] = j
                else:
                    board.put([Seat(j, slots, row, mate), Seat(mate, slots, row, j)])
            elif realm == -1:
                board.put([Seat(j, slots, row)])
            else:
                other = 0 if c.own[row] else 1 - side
                found = _take(pools.sides[row, other, realm], j)
                if found is not None:
                    board.put([Seat(j, slots, row, found), Seat(found, slots, row, j)])
                elif c.lone[side][row] >= 0:
                    board.put([Seat(j, slots, int(c.lone[side][row]))])


def _pack(c: Compiled, board: Board, items: list[_Item], tidy: bool) -> None:
    """Largest first, each into the fullest server of its kind that has room."""
    gpus = c.table.gpus
    items.sort(key=lambda item: (-int(gpus[item.row]), item.kinds, item.row, item.jobs))
    rooms: dict[int, dict[int, list[str]]] = {}

    def look(kind: int) -> None:
        by_room: dict[int, list[str]] = {}
        servers = c.kinds[kind].servers
        for server in sorted(servers, key=lambda s: (not board.in_use(s), s), reverse=True):
            by_room.setdefault(len(board.free[server]), []).append(server)
        rooms[kind] = by_room

    for kind in c.kinds:
        look(kind.index)
    for item in items:
        m, t = int(gpus[item.row]), int(c.table.type_id[item.row])
        if m > c.largest[t]:
            _put_whole(c, board, rooms, item, m, t)
            continue
        order = [item.kinds[0]]
        order += [k.index for k in c.kinds if k.gpu_type == t and k.index != item.kinds[0]]
        found = None
        for k in order:
            found = _best_room(board, rooms[k], m, c.kinds[k].size)
            if found is not None:
                break
        if tidy and m > 1 and (found is None or not board.in_use(found)):
            limit_w = c.kinds[c.kind_of[found]].use_w if found else float(c.wait_w[item.jobs[0]])
            servers = [server for k in order for server in c.kinds[k].servers]
            cleared = make_room(board, servers, m, limit_w)
            if cleared is not None:
                found, k = cleared, c.kind_of[cleared]
                for kind_index in order:
                    look(kind_index)
        if found is None:
            continue
        server = found
        room = len(board.free[server])
        rooms[k][room].remove(server)
        slots = ((server, tuple(sorted(board.free[server])[:m])),)
        _seat(board, item, slots)
        rooms[k].setdefault(room - m, []).append(server)


def _best_room(board: Board, rooms: dict[int, list[str]], m: int, size: int) -> str | None:
    if m > size:
        return None
    for room in range(m, size):
        if rooms.get(room):
            return rooms[room][-1]
    used = [server for server in rooms.get(size, ()) if board.in_use(server)]
    if used:
        return used[-1]
    return rooms[size][-1] if rooms.get(size) else None


def _put_whole(
    c: Compiled,
    board: Board,
    rooms: dict[int, dict[int, list[str]]],
    item: _Item,
    m: int,
    t: int,
) -> None:
    servers = whole_servers(board, t, m)
    if servers is None:
        return
    slots = tuple((server, tuple(range(board.size[server]))) for server in sorted(servers))
    for server in servers:
        rooms[c.kind_of[server]][board.size[server]].remove(server)
    _seat(board, item, slots)


def _seat(board: Board, item: _Item, slots: tuple[tuple[str, tuple[int, ...]], ...]) -> None:
    if len(item.jobs) == 1:
        board.put([Seat(item.jobs[0], slots, item.row)])
    else:
        i, j = item.jobs
        board.put([Seat(i, slots, item.row, j), Seat(j, slots, item.row, i)])


def _drop_short(c: Compiled, board: Board) -> None:
    """Spread jobs that did not get all their slots lose the rest; partners are left alone to go."""
    for j in sorted(board.seats):
        seats = board.seats.get(j)
        if seats is None or not c.spread[j]:
            continue
        got = sum(_got(c, j, seat) for seat in seats)
        if got >= need_of(c.required[j]) and len(seats) <= c.problem.jobs[j].max_gpus:
            continue
        for seat in list(seats):
            leave = [seat]
            if seat.partner >= 0:
                mates = board.seats[seat.partner]
                leave += [mate for mate in mates if mate.slots == seat.slots and mate.partner == j]
            board.take(leave)
    if any(_short(c, board, j) for j in board.seats):
        _drop_short(c, board)


def _short(c: Compiled, board: Board, j: int) -> bool:
    return bool(
        c.spread[j] and sum(_got(c, j, seat) for seat in board.seats[j]) < need_of(c.required[j])
    )


def _got(c: Compiled, j: int, seat: Seat) -> float:
    table = c.table
    first = table.class_a[seat.row] == c.cls[j]
    return float(table.throughput_a[seat.row] if first else table.throughput_b[seat.row])
