"""First come, first served: greedy, and blocking with EASY backfill.

`FirstCome` takes jobs in order of arrival and passes over those that do not fit; each gets the
newest free GPUs that keep its promise, alone, as few as will do. `Easy` is the classic rule of
batch systems (Lifka, "The ANL/IBM SP Scheduling System", 1995): the first job that does not fit
blocks the queue and gets a reservation at the earliest time at which enough GPUs will be free;
others may overtake it only where that does not put the reservation off. Simplified: a job's run
time is its declared steps over its believed rate, and a reservation names servers, not GPUs. Idle
servers are switched off.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gogh_core.domain import Mode, Slot
from gogh_core.simulation.board import Board, Entry, Rates, Why
from gogh_core.simulation.policies.common import Desk
from gogh_core.simulation.policies.ways import Way, newest

__all__ = ["Easy", "FirstCome", "Reservation"]

_DEPTH = 200
"""So many waiting jobs are looked at for a chance to overtake."""
_START_S = 120.0
"""Switching a server on and starting take about this long; the job then runs to its end."""


class FirstCome:
    """In order of arrival; what does not fit is passed over."""

    every_s: float | None = None
    on_events = True

    def __init__(self, rates: Rates, *, name: str = "fcfs") -> None:
        self.name = name
        self._desk = Desk(rates, newest)

    def act(self, board: Board, why: Why) -> None:
        """Place whoever fits, let services grow, switch off what nobody uses."""
        self._desk.open(board)
        if self._desk.floor.any_free():
            self._desk.place_all(self._desk.hopeful())
            self._desk.grow_services()
        board.idle_off()


@dataclass(frozen=True, slots=True)
class Reservation:
    """Where and when the first job of the queue will start."""

    at_s: float
    """From the start of the clock."""
    extra: dict[str, int]
    """By reserved server, the GPUs that will be free then and that it does not need."""
    head: str = ""
    """The job it is for."""


class Easy:
    """In order of arrival; the first job that does not fit is never put off by those behind it."""

    every_s: float | None = None
    on_events = True

    def __init__(self, rates: Rates, *, name: str = "fcfs_easy") -> None:
        self.name = name
        self._desk = Desk(rates, newest)
        self._held: Reservation | None = None

    def act(self, board: Board, why: Why) -> None:
        """Place from the front; reserve for the first that does not fit; fill in behind it."""
        self._desk.open(board)
        if self._desk.floor.any_free():
            self._desk.grow_services()
            held = self._held
            if held is not None and held.head in board.jobs and not self._desk.grew:
                self._backfill(self._desk.fresh, held)
            else:
                self._from_the_front(board.waiting)
        board.idle_off()

    def _from_the_front(self, line: list[Entry]) -> None:
        self._held = None
        for number, entry in enumerate(line):
            if self._desk.place_alone(entry):
                continue
            self._held = self.reservation(entry)
            if self._held is not None:
                self._backfill(line[number + 1 : number + 1 + _DEPTH], self._held)
                return

    def reservation(self, entry: Entry) -> Reservation | None:
        """The earliest start for a job that does not fit now; None if no end is in sight for it."""
        desk = self._desk
        ends = self._ends()
        found = []
        for way in desk.beliefs.ways(entry, newest):
            if way.gpus > desk.floor.biggest[way.gpu_type]:
                held = self._whole_servers(way, ends)
            else:
                held = self._one_server(way, ends)
            if held is not None:
                found.append(held)
        if not found:
            return None
        first = min(found, key=lambda held: (held.at_s, sorted(held.extra)))
        return replace(first, at_s=desk.board.now_s + first.at_s, head=entry.job.id)

    def _ends(self) -> dict[str, list[tuple[float, int]]]:
        """By server, when its jobs end and how many GPUs each gives back, in order."""
        board = self._desk.board
        ends: dict[str, list[tuple[float, int]]] = {}
        for entry in board.placed:
            left_s = self._desk.seconds_left(entry)
            for slot in entry.slots:
                if not board.machines[slot.server].drain:
                    ends.setdefault(slot.server, []).append((left_s, len(slot.gpus)))
        return {server: sorted(times) for server, times in ends.items()}

    def _one_server(self, way: Way, ends: dict[str, list[tuple[float, int]]]) -> Reservation | None:
        best: Reservation | None = None
        for name in self._desk.floor.kinds[way.gpu_type]:
            at_s, free = _when(len(self._desk.floor.free[name]), way.gpus, ends.get(name, ()))
            if at_s < (best.at_s if best else float("inf")):
                best = Reservation(at_s, {name: free - way.gpus})
        return best

    def _whole_servers(
        self, way: Way, ends: dict[str, list[tuple[float, int]]]
    ) -> Reservation | None:
        """Whole servers, those that empty first."""
        machines = self._desk.board.machines
        times = []
        for name in self._desk.floor.kinds[way.gpu_type]:
            size = machines[name].server.gpus
            at_s, _ = _when(len(self._desk.floor.free[name]), size, ends.get(name, ()))
            if at_s < float("inf"):
                times.append((at_s, name, size))
        left, latest_s, extra = way.gpus, 0.0, {}
        for at_s, name, size in sorted(times):
            if size <= left:
                left, latest_s = left - size, max(latest_s, at_s)
                extra[name] = 0
        return Reservation(latest_s, extra) if left == 0 else None

    def _backfill(self, line: Iterable[Entry], held: Reservation) -> None:
        """Place whoever ends before the reservation, or stays out of its way."""
        extra = held.extra
        for entry in line:
            if not self._desk.floor.any_free():
                return
            if entry.job.mode is Mode.SPREAD:
                self._backfill_service(entry, extra)
                continue
            slots = self._slots_beside(entry, extra, held.at_s)
            if slots:
                self._desk.place(entry, slots)

    def _backfill_service(self, entry: Entry, extra: dict[str, int]) -> None:
        """A service has no end: it takes replicas on servers that are not reserved only."""
        slots = self._desk.replicas(entry, ())
        if slots and not any(slot.server in extra for slot in slots):
            self._desk.place(entry, slots)

    def _slots_beside(
        self, entry: Entry, extra: dict[str, int], until_s: float
    ) -> tuple[Slot, ...]:
        """Free GPUs that do not put the reservation off; what it takes of `extra` is taken off."""
        desk = self._desk
        for way in desk.beliefs.ways(entry, newest):
            if not desk.floor.fits(way.gpu_type, way.gpus):
                continue
            if desk.board.now_s + desk.seconds_left(entry, way.rate) + _START_S <= until_s:
                return desk.floor.seat(desk.board, way.gpu_type, way.gpus)
            slots = desk.floor.seat(desk.board, way.gpu_type, way.gpus, avoid=extra)
            if slots:
                return slots
            slots = desk.floor.seat(desk.board, way.gpu_type, way.gpus)
            reserved = [slot for slot in slots if slot.server in extra]
            if reserved and all(len(slot.gpus) <= extra[slot.server] for slot in reserved):
                for slot in reserved:
                    extra[slot.server] -= len(slot.gpus)
                return slots
        return ()


def _when(free: int, gpus: int, ends: Iterable[tuple[float, int]]) -> tuple[float, int]:
    """In how many seconds so many GPUs of a server are free, and how many are free then."""
    if free >= gpus:
        return 0.0, free
    at_s = float("inf")
    for left_s, given in ends:
        if free >= gpus and left_s > at_s:
            break
        free += given
        if free >= gpus:
            at_s = left_s
    return at_s, free
