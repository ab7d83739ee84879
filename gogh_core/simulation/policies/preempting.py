"""Preemption for policies that rank jobs: stop worse jobs on one server so that a better one fits.

Services and jobs that may not be moved are never preempted; nor are those that have only just
started, so that jobs do not displace each other in circles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gogh_core.domain import Mode, Slot
from gogh_core.simulation.board import Board, Entry
from gogh_core.simulation.policies.common import INF, Desk
from gogh_core.simulation.policies.ways import Way

__all__ = ["Preemptor"]

_AGAIN_S = 60.0
"""Without a new job, preemption is thought about this often."""
Rank = Callable[[Entry], float]


@dataclass(frozen=True, slots=True)
class _Choice:
    way: Way
    server: str
    victims: tuple[Entry, ...]


class Preemptor:
    """Finds whom to stop; a high rank is a bad one."""

    def __init__(self, desk: Desk, rank: Rank, *, ran_s: float, most_stops: int) -> None:
        self._desk = desk
        self._rank = rank
        self._ran_s = ran_s
        self._most_stops = most_stops
        self._victims: dict[str, list[tuple[float, Entry]]] = {}
        self._worst = -INF
        self._looked_s = -INF

    def due(self, board: Board) -> bool:
        """Whether to look for somebody to stop: a job has come, or the last look is old."""
        new = any(not entry.slots for entry in self._desk.fresh)
        if not new and board.now_s - self._looked_s < _AGAIN_S:
            return False
        self._looked_s = board.now_s
        self._look(board)
        return True

    def _look(self, board: Board) -> None:
        """Note by server who may be stopped, the worst first."""
        found: dict[str, list[tuple[float, Entry]]] = {}
        for entry in board.jobs.values():
            if entry.slots and self._may_stop(board, entry):
                found.setdefault(entry.slots[0].server, []).append((self._rank(entry), entry))
        for victims in found.values():
            victims.sort(key=lambda victim: (-victim[0], victim[1].job.id))
        self._victims = found
        self._worst = max((victims[0][0] for victims in found.values()), default=-INF)

    def _may_stop(self, board: Board, entry: Entry) -> bool:
        return (
            len(entry.slots) == 1
            and entry.job.mode is Mode.GANG
            and entry.job.movable
            and entry.stops < self._most_stops
            and board.now_s - entry.since_s >= self._ran_s
        )

    def serve(self, line: Sequence[Entry], limit: Rank) -> None:
        """Place jobs in this order, by stopping jobs that rank above `limit` of the newcomer.

        The limit rises along the line, so that what did not fit does not fit later either.
        """
        desk = self._desk
        failed: dict[int, float] = {}
        for number, entry in enumerate(line):
            least = limit(entry)
            if least >= self._worst:
                desk.place_all(line[number:])
                return
            group, need = desk.group(entry)
            if need >= failed.get(group, INF) or desk.place_alone(entry):
                continue
            choice = None if entry.job.mode is Mode.SPREAD else self._choose(entry, least)
            if choice is None:
                failed[group] = need
            else:
                self._replace(entry, choice)

    def _choose(self, entry: Entry, least: float) -> _Choice | None:
        """The server where the best of those who have to go is as bad as can be."""
        best: tuple[float, int, str] | None = None
        chosen: _Choice | None = None
        for way in self._desk.beliefs.ways(entry, self._desk.prefer):
            for server in self._desk.floor.kinds[way.gpu_type]:
                victims = self._enough(server, way.gpus, least)
                if victims is None:
                    continue
                order = (-victims[-1][0], len(victims), server)
                if best is None or order < best:
                    best = order
                    chosen = _Choice(way, server, tuple(entry for _, entry in victims))
            if chosen is not None:
                return chosen
        return None

    def _enough(self, server: str, gpus: int, least: float) -> list[tuple[float, Entry]] | None:
        """The worst jobs of a server that give enough GPUs up together; None if there are none."""
        candidates = self._victims.get(server)
        if not candidates or self._desk.board.machines[server].drain:
            return None
        free = len(self._desk.floor.free[server])
        chosen = []
        for rank, entry in candidates:
            if free >= gpus or rank <= least:
                break
            chosen.append((rank, entry))
            free += entry.gpus
        return chosen if free >= gpus and chosen else None

    def _replace(self, entry: Entry, choice: _Choice) -> None:
        for victim in choice.victims:
            self._desk.stop(victim)
        gone = {victim.job.id for victim in choice.victims}
        left = [one for one in self._victims[choice.server] if one[1].job.id not in gone]
        self._victims[choice.server] = left
        free = self._desk.floor.free[choice.server]
        self._desk.place(entry, (Slot(choice.server, tuple(free[: choice.way.gpus])),))
        self._worst = max(
            (victims[0][0] for victims in self._victims.values() if victims),
            default=-INF,
        )
