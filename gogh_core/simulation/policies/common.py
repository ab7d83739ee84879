"""What all policies share: a queue, and a desk from which orders are given.

`Desk` puts beliefs (`ways`) and free GPUs (`floor`) together with the steps that no policy should
repeat: place a job alone, give a service its replicas, let it grow, tell how long a job will take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from gogh_core.domain import Mode, Slot
from gogh_core.simulation.board import Board, Entry, Rates
from gogh_core.simulation.policies.floor import Floor, readiness
from gogh_core.simulation.policies.ways import Beliefs, Preference, newest, thriftiest

__all__ = ["Desk", "Key", "Queue"]

INF = float("inf")
Key = tuple[float, float, str]
"""What a queue is sorted by: a figure, the time of arrival, the id."""
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


class Queue:
    """Waiting jobs by a key that does not change while they wait."""

    def __init__(self, key: Callable[[Entry], Key]) -> None:
        self.key = key
        self.keys: dict[str, Key] = {}
        self._line: list[Entry] = []

    def waiting(self, board: Board) -> list[Entry]:
        """All of them in order; sorting what was nearly in order takes little."""
        jobs, keys = board.jobs, self.keys
        line = []
        for entry in self._line:
            if entry.slots or jobs.get(entry.job.id) is not entry:
                keys.pop(entry.job.id, None)
            else:
                line.append(entry)
        for name, entry in jobs.items():
            if not entry.slots and name not in keys:
                keys[name] = self.key(entry)
                line.append(entry)
        line.sort(key=lambda entry: keys[entry.job.id])
        self._line = line
        return list(line)

    def forget(self) -> None:
        """Ask for every key again."""
        self.keys, self._line = {}, []


class Desk:
    """Beliefs, free GPUs and the steps that policies share."""

    def __init__(
        self, rates: Rates, prefer: Preference = newest, serve: Preference = thriftiest
    ) -> None:
        self.beliefs = Beliefs(rates)
        self.floor = Floor()
        self.prefer = prefer
        self.serve = serve
        """The same for the replicas of services."""
        self.board: Board = Board((), _NEVER)
        self.fresh: list[Entry] = []
        """Jobs that have come since the desk was last opened."""
        self.grew = True
        """Whether there may be room now for jobs that had none."""
        self._failed: dict[int, float] = {}
        """By group, the least that a job needed for which there was no room."""
        self._groups: dict[str, tuple[int, float]] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._known: set[str] = set()
        self._services: dict[str, Entry] = {}

    def open(self, board: Board) -> list[str]:
        """Begin to act; the servers that changed since the last time."""
        self.board = board
        renewed = self.beliefs.refresh(board)
        changed = self.floor.read(board)
        self.grew = renewed or self.floor.grew
        if self.grew:
            self._failed.clear()
        if renewed:
            self._groups.clear()
        self._meet(board)
        return list(board.machines) if renewed else changed

    def _meet(self, board: Board) -> None:
        self.fresh = []
        for name in reversed(board.jobs):
            if name in self._known:
                break
            self._known.add(name)
            entry = board.jobs[name]
            self.fresh.append(entry)
            if entry.job.mode is Mode.SPREAD:
                self._services[name] = entry
        self.fresh.reverse()

    def hopeful(self) -> list[Entry]:
        """Waiting jobs worth a try, by arrival: all of them if there is new room, else new ones."""
        if self.grew:
            return self.board.waiting
        return [entry for entry in self.fresh if not entry.slots]

    def line(self, queue: Queue) -> list[Entry]:
        """The same in the order of a queue."""
        return queue.waiting(self.board) if self.grew else sorted(self.hopeful(), key=queue.key)

    # -- orders ----------------------------------------------------------------------------

    def place(self, entry: Entry, slots: tuple[Slot, ...]) -> None:
        """Start a waiting job there."""
        self.board.place(entry.id, slots)
        self.floor.update(self.board, slots)

    def move(self, entry: Entry, slots: tuple[Slot, ...]) -> None:
        """Carry a placed job over."""
        before = entry.slots
        self.board.move(entry.id, slots)
        self.floor.update(self.board, (*before, *slots))
        if not set(before) <= set(slots):
            self._failed.clear()
            self.grew = True

    def stop(self, entry: Entry) -> None:
        """Take a job off its GPUs; whoever did not fit may fit now."""
        before = entry.slots
        self.board.stop(entry.id)
        self.floor.update(self.board, before)
        self._failed.clear()
        self.grew = True

    # -- jobs alone on their GPUs ------------------------------------------------------------

    def place_all(self, line: Iterable[Entry]) -> None:
        """Greedily, in this order: what does not fit is passed over."""
        if not self.floor.any_free():
            return
        failed, groups = self._failed, self._groups
        for entry in line:
            group, need = groups.get(entry.job.id) or self.group(entry)
            if need >= failed.get(group, INF):
                continue
            if self.place_alone(entry) and not self.floor.any_free():
                return

    def place_alone(self, entry: Entry) -> bool:
        """Place a waiting job on free GPUs where it keeps its promise; whether there were any."""
        group, need = self.group(entry)
        if need >= self._failed.get(group, INF):
            return False
        slots = self.slots_for(entry)
        if not slots:
            self._failed[group] = need
            return False
        self.place(entry, slots)
        return True

    def group(self, entry: Entry) -> tuple[int, float]:
        """Jobs that run alike, and what tells them apart: what fits one fits all that need less."""
        known = self._groups.get(entry.job.id)
        if known is not None:
            return known
        job, need = entry.job, self.beliefs.need(entry)
        ways = self.beliefs.all_ways(job, self.prefer)
        late = not any(way.rate >= need for way in ways)
        key = (job.job_class, job.mode, job.gpu_counts, late)
        found = (self._numbers.setdefault(key, len(self._numbers)), need)
        if job.mode is Mode.GANG:  # what is asked of a service changes
            self._groups[job.id] = found
        return found

    def slots_for(self, entry: Entry) -> tuple[Slot, ...]:
        """The preferred free GPUs for a waiting job; () where there are none."""
        if entry.job.mode is Mode.SPREAD:
            return self.replicas(entry, ())
        for way in self.beliefs.ways(entry, self.prefer):
            if self.floor.fits(way.gpu_type, way.gpus):
                slots = self.floor.seat(self.board, way.gpu_type, way.gpus)
                if slots:
                    return slots
        return ()

    # -- services ----------------------------------------------------------------------------

    def services(self) -> Iterator[Entry]:
        """Serving jobs that are there, in order of arrival; those that have gone are forgotten."""
        for name in sorted(self._services, key=lambda name: self._services[name].arrived_s):
            entry = self.board.jobs.get(name)
            if entry is None:
                del self._services[name]
            else:
                yield entry

    def rate_at(self, entry: Entry, slot: Slot) -> float:
        """The believed rate of one replica or of a gang on a slot, beside whoever is there."""
        machine = self.board.machines[slot.server]
        others = [name for name in machine.users[slot.gpus[0]] if name != entry.job.id]
        names = (entry.job.job_class, *(self.board.jobs[n].job.job_class for n in others[:1]))
        guess = self.beliefs.run(machine.server.gpu_type, len(slot.gpus), names)
        return guess.throughput[0] if guess else 0.0

    def reached(self, entry: Entry) -> float:
        """What a service is believed to reach with the replicas it has."""
        return sum(self.rate_at(entry, slot) for slot in entry.slots)

    def is_short(self, entry: Entry) -> bool:
        """Whether a service with a place needs more replicas and may have them."""
        if not entry.slots or entry.gpus >= entry.job.max_gpus or not entry.job.movable:
            return False
        return self.reached(entry) < entry.required

    def replicas(self, entry: Entry, have: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """`have` and as many free GPUs more as are needed to carry the load, or as there are."""
        chosen = list(have)
        reached = sum(self.rate_at(entry, slot) for slot in have)
        for way in self.beliefs.ways(entry, self.serve):
            for name in self._in_order(way.gpu_type):
                for gpu in self.floor.free[name]:
                    if reached >= entry.required or len(chosen) >= entry.job.max_gpus:
                        return tuple(chosen)
                    chosen.append(Slot(name, (gpu,)))
                    reached += way.rate
        return tuple(chosen)

    def _in_order(self, gpu_type: str) -> list[str]:
        """Servers of a type with free GPUs: occupied ones first, those that are off last."""
        names = [name for name in self.floor.kinds[gpu_type] if self.floor.free[name]]
        return sorted(names, key=lambda name: (*readiness(self.board.machines[name]), name))

    def grow_services(self) -> None:
        """Give services that fell short more replicas on free GPUs."""
        for entry in list(self.services()):
            if self.is_short(entry):
                slots = self.replicas(entry, entry.slots)
                if len(slots) > len(entry.slots):
                    self.move(entry, slots)

    def serve_first(self) -> None:
        """Services before all else, for policies whose papers know batch jobs only."""
        self.place_all([entry for entry in self.services() if not entry.slots])
        self.grow_services()

    # -- time --------------------------------------------------------------------------------

    def seconds_left(self, entry: Entry, rate: float | None = None) -> float:
        """How long the job still takes, by its declared steps; inf where it declares none.

        Without a rate: as it runs now, or on the way it would like best.
        """
        total = entry.job.total_steps
        if total is None:
            return INF
        if rate is None and entry.slots:
            rate = self.gang_rate(entry)
        elif rate is None:
            ways = self.beliefs.ways(entry, self.prefer)
            rate = ways[0].rate if ways else 0.0
        left = max(total - entry.steps_at(self.board.now_s), 0.0)
        return left / rate if rate > 0 else INF

    def gang_rate(self, entry: Entry) -> float:
        """The believed rate of a placed gang, beside its partner if it has one."""
        slot = entry.slots[0]
        machine = self.board.machines[slot.server]
        partners = [name for name in machine.users[slot.gpus[0]] if name != entry.job.id]
        names = (entry.job.job_class, *(self.board.jobs[n].job.job_class for n in partners[:1]))
        guess = self.beliefs.run(machine.server.gpu_type, entry.gpus, names)
        return guess.throughput[0] if guess else 0.0
