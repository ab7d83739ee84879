"""Room on servers: where the best fit is, whole servers that are empty, and room that is made.

Who stays leaves free GPUs scattered, and a gang needs them on one server. So small units (a job,
or two that share) move into holes of other servers of the same GPU type, the cheapest to move
first, until the gang fits; where that is not enough, who matters less than the gang stops.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from gogh_core.allocation.board import Board
from gogh_core.allocation.compiled import Compiled, Seat

__all__ = ["Rooms", "make_room", "whole_servers"]

INF = float("inf")


class Rooms:
    """Servers by free GPUs, so that the best fit is found without a scan."""

    def __init__(self, board: Board, compiled: Compiled) -> None:
        self.board, self.compiled = board, compiled
        self.used: list[dict[int, list[str]]] = [{} for _ in compiled.kinds]
        self.unused: list[list[str]] = [[] for _ in compiled.kinds]
        for kind in compiled.kinds:
            for server in kind.servers:
                self.add(server)

    def add(self, server: str) -> None:
        """Note a server as it is now."""
        kind = self.compiled.kind_of[server]
        if self.board.in_use(server):
            insort(self.used[kind].setdefault(len(self.board.free[server]), []), server)
        else:
            insort(self.unused[kind], server)

    def drop(self, server: str) -> None:
        """Forget a server, before it changes."""
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


@dataclass(slots=True)
class _Unit:
    """Seats that leave together: a job alone on its GPUs, or two that share them."""

    seats: list[Seat]
    gpus: int
    move_w: float
    """What moving it costs; inf where it may not move."""
    stop_w: float


def make_room(board: Board, servers: list[str], gpus: int, limit_w: float) -> str | None:
    """The server of these where so many GPUs are free now, or None if that costs too much."""
    used = [s for s in servers if board.in_use(s) and board.size[s] >= gpus]
    holes = {s: len(board.free[s]) for s in used if board.free[s]}
    by_server = _units(board, used) if used else {}
    best: tuple[float, str, list[tuple[_Unit, str | None]]] | None = None
    for server in sorted(used):
        missing = gpus - holes.get(server, 0)
        others = {s: n for s, n in holes.items() if s != server}
        found = _fitted(by_server[server], missing, others)
        if found is not None:
            cost_w = sum(unit.stop_w if to is None else unit.move_w for unit, to in found)
            if cost_w < limit_w and (best is None or cost_w < best[0]):
                best = (cost_w, server, found)
    if best is None:
        return None
    moved = {j for unit, to in best[2] if to for j in _jobs(unit) if board.compiled.running[j]}
    if len(board.moved | moved) > board.max_moves:
        return None
    for unit, to in best[2]:
        board.take(unit.seats)
        if to is not None:
            slots = ((to, tuple(sorted(board.free[to])[: unit.gpus])),)
            board.put([Seat(seat.job, slots, seat.row, seat.partner) for seat in unit.seats])
    return best[1]


def _jobs(unit: _Unit) -> list[int]:
    return [seat.job for seat in unit.seats]


def _fitted(
    units: list[_Unit], missing: int, holes: dict[str, int]
) -> list[tuple[_Unit, str | None]] | None:
    """Units that leave, cheapest for each GPU first, each into the smallest hole that is enough.

    Who finds none, or may not move, stops.
    """
    holes = dict(holes)
    chosen: list[tuple[_Unit, str | None]] = []
    stay = []
    for unit in units:
        if missing <= 0:
            break
        fit = [(n, s) for s, n in holes.items() if n >= unit.gpus]
        if fit and unit.move_w < INF:
            _, server = min(fit)
            holes[server] -= unit.gpus
            chosen.append((unit, server))
            missing -= unit.gpus
        else:
            stay.append(unit)
    for unit in sorted(stay, key=lambda unit: (unit.stop_w / unit.gpus, unit.seats[0].job)):
        if missing > 0 and unit.stop_w < INF:
            chosen.append((unit, None))
            missing -= unit.gpus
    return chosen if missing <= 0 else None


def _units(board: Board, servers: list[str]) -> dict[str, list[_Unit]]:
    """The units of these servers that may leave, cheapest to move for each GPU first."""
    c = board.compiled
    found: dict[str, list[_Unit]] = {server: [] for server in servers}
    for j, seats in board.seats.items():
        if len(seats) != 1 or len(seats[0].slots) != 1:
            continue
        ((server, gpus),) = seats[0].slots
        mate = seats[0].partner
        together = [seats[0]]
        if server not in found or 0 <= mate < j:
            continue
        if mate >= 0:
            if len(board.seats[mate]) != 1:
                continue
            together.append(board.seats[mate][0])
        jobs = [seat.job for seat in together]
        cost_w = sum(float(c.move_w[i]) for i in jobs if c.running[i] and i not in board.moved)
        if c.spread[jobs].any() or not all(c.free[i] or not c.running[i] for i in jobs):
            cost_w = INF
        stop_w = INF if any(c.problem.jobs[i].pinned for i in jobs) else c.wait_w[jobs].sum()
        found[server].append(_Unit(together, len(gpus), cost_w, float(stop_w)))
    for units in found.values():
        units.sort(key=lambda unit: (unit.move_w / unit.gpus, unit.gpus, unit.seats[0].job))
    return found
