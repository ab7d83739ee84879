"""The board: which GPUs are taken by whom while a plan is being made, and what a change costs.

The greedy rule, the mapping of counts to servers and the local improvement all move pieces on
it. It keeps the running totals (power, moves, quotas) that limit what may be done next.
"""

from __future__ import annotations

from collections.abc import Iterable

from gogh_core.allocation.compiled import Compiled, Seat, Seats
from gogh_core.allocation.problem import Gpu

__all__ = ["Board"]


class Board:
    """Seats of jobs on GPUs; every change goes through `put` and `take`."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        problem = compiled.problem
        self.seats: Seats = {}
        self.free: dict[str, set[int]] = {
            server.id: set(range(server.gpus)) for server in problem.servers if not server.drain
        }
        self.size = {server.id: server.gpus for server in problem.servers}
        self.power_w = compiled.fixed_power_w
        self.moved: set[int] = set()
        self.quota_used = [0] * len(compiled.owners)
        self.quota = [problem.quotas[owner] for owner in compiled.owners]
        self.cap_w = float("inf") if problem.power_cap_w is None else problem.power_cap_w
        self.max_moves = len(problem.jobs) if problem.max_moves is None else problem.max_moves
        self._place = [frozenset(job.place) for job in problem.jobs]

    def in_use(self, server: str) -> bool:
        """Whether the server has a job."""
        return len(self.free[server]) < self.size[server]

    def use_power_w(self, servers: Iterable[str]) -> float:
        """Power that taking GPUs there adds for servers that are not in use yet."""
        c = self.compiled
        return sum(c.kinds[c.kind_of[s]].power_w for s in servers if not self.in_use(s))

    def put(self, seats: Iterable[Seat]) -> None:
        """Seat jobs; two that share come together."""
        c = self.compiled
        seats = list(seats)
        for seat in seats:
            if seat.partner < 0 or seat.job < seat.partner:
                self.power_w += self.use_power_w(server for server, _ in seat.slots)
                self.power_w += float(c.net_w[seat.row])
                for server, gpus in seat.slots:
                    self.free[server].difference_update(gpus)
        for seat in seats:
            for server, gpus in seat.slots:
                self.free[server].difference_update(gpus)
            self.seats.setdefault(seat.job, []).append(seat)
            if c.owner[seat.job] >= 0:
                self.quota_used[c.owner[seat.job]] += sum(len(g) for _, g in seat.slots)
        for job in {seat.job for seat in seats}:
            self._note_move(job)

    def take(self, seats: Iterable[Seat], *, keep_gpus: bool = False) -> None:
        """Take seats away; two that share leave together (or `keep_gpus` for the next to come)."""
        c = self.compiled
        seats = list(seats)
        for seat in seats:
            lead = seat.partner < 0 or seat.job < seat.partner
            if lead:
                self.power_w -= float(c.net_w[seat.row])
            if lead and not keep_gpus:
                for server, gpus in seat.slots:
                    self.free[server].update(gpus)
                self.power_w -= self.use_power_w(server for server, _ in seat.slots)
            self.seats[seat.job].remove(seat)
            if not self.seats[seat.job]:
                del self.seats[seat.job]
            if c.owner[seat.job] >= 0:
                self.quota_used[c.owner[seat.job]] -= sum(len(g) for _, g in seat.slots)
        for job in {seat.job for seat in seats}:
            self._note_move(job)

    def _note_move(self, job: int) -> None:
        seats = self.seats.get(job)
        here: frozenset[Gpu] = frozenset().union(*(s.gpus for s in seats)) if seats else frozenset()
        if self._place[job] and here and here != self._place[job]:
            self.moved.add(job)
        else:
            self.moved.discard(job)

    def quota_allows(self, job: int, gpus: int) -> bool:
        """Whether the owner may take that many more GPUs."""
        owner = self.compiled.owner[job]
        return bool(owner < 0 or self.quota_used[owner] + gpus <= self.quota[owner])

    def may_move(self, job: int) -> bool:
        """Whether the job may sit elsewhere than now."""
        c = self.compiled
        if not c.running[job]:
            return True
        return bool(c.free[job]) and (job in self.moved or len(self.moved) < self.max_moves)
