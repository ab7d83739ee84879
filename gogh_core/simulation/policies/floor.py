"""Where there is room: the free GPUs of each server, and the server that a gang is given."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gogh_core.domain import PowerState, Slot
from gogh_core.simulation.board import Board, Machine

__all__ = ["Floor", "readiness"]


class Floor:
    """Free GPUs by server, as of the last `read` and of the orders given through it."""

    def __init__(self) -> None:
        self.free: dict[str, list[int]] = {}
        self.most: dict[str, int] = {}
        """The most free GPUs on one server of each type."""
        self.kinds: dict[str, list[str]] = {}
        """Servers by GPU type."""
        self.biggest: dict[str, int] = {}
        self.grew = False
        """Whether the last `read` found more room than the orders before it had left."""
        self._seen: dict[str, tuple[object, ...]] = {}
        self._board: Board | None = None

    def read(self, board: Board) -> list[str]:
        """Look at every server; the names of those that changed since the last time."""
        if board is not self._board:
            self._begin(board)
        changed = []
        self.grew = not self._seen
        for name, machine in board.machines.items():
            shut = machine.drain or machine.power is PowerState.DOWN
            before = self._seen.get(name)
            if before == (machine.users, shut, machine.dead):
                continue
            changed.append(name)
            self._seen[name] = ([list(users) for users in machine.users], shut, machine.dead)
            had = len(self.free.get(name, ()))
            self.free[name] = [] if shut else machine.free()
            # Whoever a fault threw out may fit elsewhere: that counts as room, too.
            faulty = before is not None and before[1:] != (shut, machine.dead)
            self.grew = self.grew or faulty or len(self.free[name]) > had
        for kind in {board.machines[name].server.gpu_type for name in changed}:
            self._count(kind)
        return changed

    def _begin(self, board: Board) -> None:
        self._board, self._seen = board, {}
        self.kinds, self.biggest = {}, {}
        for name, machine in board.machines.items():
            kind = machine.server.gpu_type
            self.kinds.setdefault(kind, []).append(name)
            self.biggest[kind] = max(self.biggest.get(kind, 0), machine.server.gpus)

    def update(self, board: Board, slots: Iterable[Slot]) -> None:
        """Look at these servers again, after an order; the next `read` still calls them changed."""
        kinds = set()
        for name in {slot.server for slot in slots}:
            machine = board.machines[name]
            shut = machine.drain or machine.power is PowerState.DOWN
            self.free[name] = [] if shut else machine.free()
            kinds.add(machine.server.gpu_type)
        for kind in kinds:
            self._count(kind)

    def _count(self, kind: str) -> None:
        self.most[kind] = max(len(self.free[name]) for name in self.kinds[kind])

    def any_free(self) -> bool:
        """Whether any GPU is free."""
        return any(self.most.values())

    def fits(self, gpu_type: str, gpus: int) -> bool:
        """Whether a gang may find room; what is larger than a server is looked at when seated."""
        return gpus <= self.most[gpu_type] or gpus > self.biggest[gpu_type]

    def seat(
        self, board: Board, gpu_type: str, gpus: int, avoid: Collection[str] = ()
    ) -> tuple[Slot, ...]:
        """Free GPUs for a gang: on occupied servers first, then idle ones, then those that are off.

        Among equals the tightest fit. A gang that is larger than any server fills whole servers.
        """
        if gpus > self.biggest[gpu_type]:
            return self._whole(board, gpu_type, gpus, avoid)
        best: tuple[bool, bool, int, str] | None = None
        for name in self.kinds[gpu_type]:
            size = len(self.free[name])
            if size >= gpus and name not in avoid:
                rank = (*readiness(board.machines[name]), size, name)
                if best is None or rank < best:
                    best = rank
        if best is None:
            return ()
        return (Slot(best[3], tuple(self.free[best[3]][:gpus])),)

    def _whole(
        self, board: Board, gpu_type: str, gpus: int, avoid: Collection[str]
    ) -> tuple[Slot, ...]:
        left, chosen = gpus, []
        empty = [
            name
            for name in self.kinds[gpu_type]
            if len(self.free[name]) == board.machines[name].server.gpus and name not in avoid
        ]
        for name in sorted(empty, key=lambda name: (*readiness(board.machines[name]), name)):
            if 0 < len(self.free[name]) <= left:
                chosen.append(Slot(name, tuple(self.free[name])))
                left -= len(self.free[name])
        return () if left else tuple(chosen)


def readiness(machine: Machine) -> tuple[bool, bool]:
    """Sorts occupied servers before idle ones, and those before servers that are off."""
    return not machine.usable, not machine.busy()
