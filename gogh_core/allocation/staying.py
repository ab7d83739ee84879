"""Who runs goes on: seats of everybody who can stay where they are, with whom they are.

It is the first plan there is, and where pins or the cap cannot be kept it says why.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gogh_core.allocation.board import Board
from gogh_core.allocation.compiled import Compiled, Seat, Seats, need_of

__all__ = ["Infeasible", "keep_running", "stay_seats"]


class Infeasible(Exception):
    """Pins, drains or the cap cannot be kept; with every reason."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__("; ".join(reasons))


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
    here, usable, rows = c.rows_of(j)
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


def _stay_alone(c: Compiled, j: int) -> list[Seat] | None:
    stay = c.stay_of(j)
    assert stay is not None
    _, usable, rows = c.rows_of(j)
    fit = usable & ~c.pair[rows]
    fit &= (c.table.type_id[rows] == stay[0]) & (c.table.gpus[rows] == stay[1])
    if not fit.any():
        return None
    found = rows[fit]
    return [Seat(j, _here(c, j), int(found[np.argmin(c.net_w[found])]))]


def best_pair(c: Compiled, i: int, j: int, gpu_type: int, gpus: int) -> int | None:
    """The cheapest option in which two jobs share GPUs of a type, or None."""
    table = c.table
    _, usable_i, rows_i = c.rows_of(i)
    _, usable_j, rows_j = c.rows_of(j)
    fit = usable_i & c.pair[rows_i]
    fit &= (table.type_id[rows_i] == gpu_type) & (table.gpus[rows_i] == gpus)
    other = int(c.cls[j])
    fit &= (table.class_a[rows_i] + table.class_b[rows_i]) == other + int(c.cls[i])
    fit &= (table.class_a[rows_i] == other) | (table.class_b[rows_i] == other)
    found = np.intersect1d(rows_i[fit], rows_j[usable_j])
    if not len(found):
        return None
    return int(found[np.argmin(c.net_w[found])])
