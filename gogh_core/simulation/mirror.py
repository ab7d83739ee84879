"""Keeps the board as the world is: only rows that something happened to are written again.

The mirror sees both; the board sees neither the mirror nor the world.
"""

from __future__ import annotations

from collections.abc import Iterable

from gogh_core.simulation.board import Board, Entry, Order
from gogh_core.simulation.records import JobRecord, ServerRecord
from gogh_core.simulation.world import World

__all__ = ["Mirror"]


class Mirror:
    """A board and what has to be written on it again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.board = Board([record.server for record in world.servers.values()], world.start)
        self._jobs: dict[str, JobRecord] = {}
        self._servers: dict[str, ServerRecord] = {}
        self.changed(world.jobs.values(), world.servers.values())
        self.update()

    def changed(self, jobs: Iterable[JobRecord], servers: Iterable[ServerRecord]) -> None:
        """These are no longer as the board says."""
        for job in jobs:
            self._jobs[job.id] = job
        for server in servers:
            self._servers[server.server.id] = server

    def ordered(self, orders: Iterable[Order]) -> None:
        """Orders were carried out or refused: what the board wrote on itself may be wrong."""
        world = self._world
        for order in orders:
            names = [order.target, *(slot.server for slot in order.slots)]
            record = world.jobs.get(order.target)
            if record is not None:
                self._jobs[record.id] = record
                names += [place.server for place in record.places]
            for name in names:
                if name in world.servers:
                    self._servers[name] = world.servers[name]

    def update(self) -> None:
        """Make the board as the world is now."""
        board, world = self.board, self._world
        board.now_s = world.now_s
        for record in self._jobs.values():
            if not record.active:
                board.drop(record.id)
                continue
            entry = board.jobs.get(record.id)
            if entry is None:
                job = record.demand.job
                entry = Entry(job, record.demand.arrives_s, 0.0, number=record.number)
            _fill(entry, record)
            board.admit(entry)
        self._jobs.clear()
        for name, server in self._servers.items():
            machine = board.machines[name]
            machine.power, machine.ready_s = server.power, server.ready_s
            machine.since_s, machine.drain = server.since_s, server.drain
            machine.dead = frozenset(server.dead)
            board.seat_users(machine, world.floor.users(server))
        self._servers.clear()


def _fill(entry: Entry, record: JobRecord) -> None:
    entry.required, entry.state = record.required, record.state
    entry.slots = tuple(place.slot for place in record.places)
    entry.since_s, entry.started_s = record.since_s, record.started_s
    entry.moved_s, entry.moves, entry.stops = record.moved_s, record.moves, record.stops
    entry.limit_w, entry.rate = record.limit_w, record.rate
    entry.steps, entry.waited_s = record.steps, record.waited_s
    entry.gpu_s, entry.at_s = record.gpu_s, record.at_s
