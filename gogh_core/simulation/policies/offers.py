"""Places that a job could take, and the energy that taking each adds for every step.

The cost of an offer is what the cluster draws more because of it, over the rate that the job gets:
on a free GPU its draw above idle, and on an empty server that server's whole draw as well; beside
another job what the pair draws more, and what the other's lost steps cost later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gogh_core import hardware
from gogh_core.domain import Job, Mode, Slot
from gogh_core.simulation.board import Board, Entry, Guess, Machine
from gogh_core.simulation.policies.floor import Floor
from gogh_core.simulation.policies.ways import Beliefs, may_share

__all__ = ["Offer", "Offers"]

_Pair = tuple[float, float, float]
"""The newcomer's rate, its host's rate, joules that each step of the newcomer adds."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A place and what it costs."""

    joules: float
    """Energy per step that taking it adds."""
    slot: Slot
    rate: float

    @property
    def rank(self) -> tuple[float, str]:
        """The cheapest first, then by name."""
        return self.joules, self.slot.server


@dataclass(frozen=True, slots=True)
class _Host:
    """A gang alone on its GPUs that would share them."""

    entry: Entry
    job: Job
    slot: Slot


class Offers:
    """Offers on the servers as they are now; `look` again at those that change."""

    def __init__(self, beliefs: Beliefs, floor: Floor, *, share: float = 0.0) -> None:
        self._beliefs = beliefs
        self._floor = floor
        self._share = share
        """Of an occupied server's own draw, what a job pays for its part of the GPUs."""
        self._hosts: dict[str, list[_Host]] = {}
        self._pairs: dict[tuple[str, int, str, str], _Pair | None] = {}
        self._owned: set[str] = set()

    @property
    def by_owner(self) -> bool:
        """Whether any host shares with its owner's jobs only."""
        return bool(self._owned)

    def forget(self) -> None:
        """What was believed may have changed."""
        self._pairs.clear()

    def look(self, board: Board, servers: Iterable[str]) -> None:
        """Find the hosts on these servers again."""
        for name in servers:
            machine = board.machines[name]
            found: dict[str, _Host] = {}
            if not machine.drain:
                for users in machine.users:
                    if len(users) == 1 and users[0] not in found:
                        host = _host(board.jobs[users[0]])
                        if host is not None:
                            found[users[0]] = host
            hosts = sorted(found.values(), key=lambda host: (host.entry.arrived_s, host.job.id))
            self._hosts[name] = hosts
            if any(host.job.shareable == "owner" for host in hosts):
                self._owned.add(name)
            else:
                self._owned.discard(name)

    def of(self, board: Board, entry: Entry, servers: Iterable[str]) -> Iterator[Offer]:
        """Every place on these servers where the job keeps its promise, and so does its host."""
        job, need = entry.job, self._beliefs.need(entry)
        counts = (1,) if job.mode is Mode.SPREAD else tuple(sorted(job.gpu_counts))
        for name in servers:
            yield from self._alone(board, name, job, counts, need)
            if job.shareable is not False:
                yield from self._shared(board, name, entry, counts, need)

    def _alone(
        self, board: Board, name: str, job: Job, counts: tuple[int, ...], need: float
    ) -> Iterator[Offer]:
        free = self._floor.free[name]
        if not free:
            return
        machine = board.machines[name]
        kind = machine.server.gpu_type
        empty = len(free) == machine.server.gpus - len(machine.dead)
        for count in counts:
            if count > len(free):
                continue
            guess = self._beliefs.run(kind, count, (job.job_class,))
            if guess is None or guess.throughput[0] < need:
                continue
            rate = guess.throughput[0]
            joules = self._added_w(machine, guess, count, empty=empty) / rate
            if job.mode is Mode.SPREAD:
                for gpu in free:
                    yield Offer(joules, Slot(name, (gpu,)), rate)
            else:
                yield Offer(joules, Slot(name, tuple(free[:count])), rate)

    def _added_w(self, machine: Machine, guess: Guess, count: int, *, empty: bool) -> float:
        server = machine.server
        idle_w = hardware.get(server.gpu_type).idle_w
        if empty:  # It would be off without this job: its own draw is the job's doing.
            extra_w = server.base_w + idle_w * (server.gpus - len(machine.dead))
        else:
            extra_w = self._share * (server.base_w / server.gpus + idle_w) * count
        return (guess.power_w - idle_w) * count + extra_w

    def now(self, board: Board, entry: Entry) -> float | None:
        """What a step of a placed gang costs where it is; None where that cannot be told."""
        slot = entry.slots[0]
        machine = board.machines[slot.server]
        kind, count, name = machine.server.gpu_type, len(slot.gpus), entry.job.id
        partners = [user for user in machine.users[slot.gpus[0]] if user != name]
        if partners:
            host = board.jobs[partners[0]].job
            pair = self._pair(kind, count, host.job_class, entry.job.job_class)
            return None if pair is None or host.mode is Mode.SPREAD else pair[2]
        guess = self._beliefs.run(kind, count, (entry.job.job_class,))
        if guess is None:
            return None
        only = all(user == name for users in machine.users for user in users)
        return self._added_w(machine, guess, count, empty=only) / guess.throughput[0]

    def _shared(
        self, board: Board, name: str, entry: Entry, counts: tuple[int, ...], need: float
    ) -> Iterator[Offer]:
        kind = board.machines[name].server.gpu_type
        for host in self._hosts[name]:
            count = len(host.slot.gpus)
            if count not in counts or host.entry is entry or not may_share(entry.job, host.job):
                continue
            pair = self._pair(kind, count, host.job.job_class, entry.job.job_class)
            if pair is None:
                continue
            ours, theirs, joules = pair
            if ours >= need and theirs >= host.job.required_throughput:
                yield Offer(joules, host.slot, ours)

    def _pair(self, kind: str, count: int, host: str, guest: str) -> _Pair | None:
        key = (kind, count, host, guest)
        if key not in self._pairs:
            self._pairs[key] = self._priced(*key)
        return self._pairs[key]

    def _priced(self, kind: str, count: int, host: str, guest: str) -> _Pair | None:
        before = self._beliefs.run(kind, count, (host,))
        both = self._beliefs.run(kind, count, (host, guest))
        if before is None or both is None:
            return None
        theirs, ours = both.throughput
        # What the other loses has to be done later, at its own cost per step.
        lost_w = before.power_w * count * (1 - theirs / before.throughput[0])
        added_w = (both.power_w - before.power_w) * count + lost_w
        return ours, theirs, added_w / ours


def _host(entry: Entry) -> _Host | None:
    job = entry.job
    if job.shareable is False or job.mode is Mode.SPREAD or len(entry.slots) != 1:
        return None
    return _Host(entry, job, entry.slots[0])
