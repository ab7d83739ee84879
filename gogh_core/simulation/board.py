"""What a scheduler may see of a cluster, and the orders it gives.

The board holds servers, GPUs and jobs as a cluster manager would tell them, and nothing of the
ground truth: no table, no world, no arrival that is still to come. A policy reads it and gives
orders (`place`, `move`, `stop`, `switch`), which the board checks, writes down on itself at once
and collects; the engine carries them out on the world afterwards. Between two decisions the engine
changes only the rows that something happened to (`admit`, `drop`, `seat_users`, `recount`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter

from gogh_core.domain import (
    ClusterState,
    JobState,
    JobStatus,
    Mode,
    PowerState,
    Server,
    ServerStatus,
    Slot,
)
from gogh_core.errors import ActionFailed
from gogh_core.simulation.entries import (
    USABLE,
    Entry,
    Guess,
    Machine,
    Order,
    Policy,
    Rates,
    Resumable,
    Why,
)

__all__ = [
    "Board",
    "Entry",
    "Guess",
    "Machine",
    "Order",
    "Policy",
    "Rates",
    "Resumable",
    "Why",
]

MOST_USERS = 2
"""Jobs that may share one GPU."""
KEPT = 0.95
"""A promise counts as kept from this share on: what noise alone takes away."""
_SOON_S = 1e-3
_NUMBER = attrgetter("number")


class _Jobs(dict[str, Entry]):
    """Jobs by id; knows whether somebody other than the board put one in or took one out."""

    by_hand = False

    def __setitem__(self, job: str, entry: Entry) -> None:
        self.by_hand = True
        super().__setitem__(job, entry)

    def __delitem__(self, job: str) -> None:
        self.by_hand = True
        super().__delitem__(job)

    def enter(self, entry: Entry) -> None:
        """The board itself puts one in."""
        super().__setitem__(entry.id, entry)


class Board:
    """Servers and jobs, and the orders given since they were last taken."""

    def __init__(self, servers: Iterable[Server], start: datetime) -> None:
        self.start = start
        self.now_s = 0.0
        self.machines: dict[str, Machine] = {
            server.id: Machine(server, users=[[] for _ in range(server.gpus)], number=number)
            for number, server in enumerate(servers)
        }
        self.jobs = _Jobs()
        """Jobs that want to run, in order of arrival."""
        self.orders: list[Order] = []
        self.refused: list[str] = []
        """Why the cluster refused some of the last orders; it did the others."""
        self.idle: dict[str, int] = {}
        """By GPU type, the GPUs that nobody uses on servers that are on or can be switched on."""
        self._rooms: dict[str, dict[int, dict[int, Machine]]] = {}
        self._waiting: dict[str, Entry] = {}
        self._placed: dict[str, Entry] = {}
        self._shuffled = [False, False]
        for machine in self.machines.values():
            self._rooms.setdefault(machine.server.gpu_type, {})
            self.idle.setdefault(machine.server.gpu_type, 0)
            self.recount(machine)

    @property
    def now(self) -> datetime:
        """The clock."""
        return self.start + timedelta(seconds=self.now_s)

    @property
    def waiting(self) -> list[Entry]:
        """Jobs without a place, in order of arrival."""
        self._regroup()
        if self._shuffled[0]:
            self._waiting = _ordered(self._waiting)
            self._shuffled[0] = False
        return list(self._waiting.values())

    @property
    def placed(self) -> list[Entry]:
        """Jobs with a place, in order of arrival."""
        self._regroup()
        if self._shuffled[1]:
            self._placed = _ordered(self._placed)
            self._shuffled[1] = False
        return list(self._placed.values())

    @property
    def waiting_count(self) -> int:
        """How many jobs have no place."""
        self._regroup()
        return len(self._waiting)

    def most_idle(self, gpu_type: str) -> int:
        """The most idle GPUs of a type on one server that is on or can be switched on."""
        return max((size for size, found in self._rooms[gpu_type].items() if found), default=0)

    def room(self, gpu_type: str, gpus: int) -> Iterator[Machine]:
        """Servers with so many idle GPUs of a type: the fullest first, then in their order."""
        rooms = self._rooms.get(gpu_type, {})
        for size in sorted(size for size, found in rooms.items() if size >= gpus and found):
            yield from [machine for _, machine in sorted(rooms[size].items())]

    # -- orders ----------------------------------------------------------------------------

    def place(self, job: str, slots: tuple[Slot, ...], limit_w: float | None = None) -> None:
        """Start a waiting job there; servers that are off are switched on for it."""
        entry = self._entry(job)
        if entry.slots:
            raise ActionFailed("runs already", where=f"job {job}")
        self._check(entry, slots)
        self._power_up(slots)
        self._seat(entry, slots)
        entry.limit_w, entry.state, entry.since_s = limit_w, JobState.RUNNING, self.now_s
        self.orders.append(Order("place", job, slots, limit_w))

    def move(self, job: str, slots: tuple[Slot, ...], limit_w: float | None = None) -> None:
        """Carry a placed job over; the same slots only change the limit."""
        entry = self._entry(job)
        if not entry.slots:
            raise ActionFailed("does not run", where=f"job {job}")
        if not entry.job.movable and set(slots) != set(entry.slots):
            raise ActionFailed("cannot be moved", where=f"job {job}")
        self._check(entry, slots)
        before, rate = entry.slots, entry.rate
        self._unseat(entry)
        self._power_up(slots)
        self._seat(entry, slots)
        entry.limit_w = limit_w
        if set(before) != set(slots):
            entry.moves, entry.moved_s, entry.since_s = entry.moves + 1, self.now_s, self.now_s
        else:
            entry.rate = rate
        self.orders.append(Order("move", job, slots, limit_w))

    def stop(self, job: str) -> None:
        """Take a placed job off its GPUs; it waits."""
        entry = self._entry(job)
        if not entry.slots:
            return
        self._unseat(entry)
        entry.state, entry.since_s, entry.stops = JobState.WAITING, self.now_s, entry.stops + 1
        self.orders.append(Order("stop", job))

    def switch(self, server: str, *, on: bool) -> None:
        """Switch a server; an occupied one stays on."""
        machine = self.machines[server]
        if machine.power is PowerState.DOWN or (machine.power in USABLE) == on:
            return
        if not on and machine.busy():
            raise ActionFailed("jobs run there", where=f"server {server}")
        machine.power = PowerState.SWITCHING_ON if on else PowerState.SWITCHING_OFF
        self.orders.append(Order("on" if on else "off", server))

    def idle_off(self, keep: Iterable[str] = ()) -> None:
        """Switch every server off that nobody uses, but those to keep."""
        kept = set(keep)
        for name, machine in self.machines.items():
            if not machine.taken and machine.power in USABLE and name not in kept:
                self.switch(name, on=False)

    # -- as others see it ------------------------------------------------------------------

    def state(self) -> ClusterState:
        """The same as a cluster manager tells it."""
        servers = tuple(
            ServerStatus(
                server=machine.server,
                power=machine.power,
                drain=machine.drain,
                foreign_gpus=tuple(sorted(machine.dead)),
                since=self.start + timedelta(seconds=machine.since_s),
            )
            for machine in self.machines.values()
        )
        return ClusterState(self.now, servers, tuple(self._status(e) for e in self.jobs.values()))

    def _status(self, entry: Entry) -> JobStatus:
        job = entry.job
        if entry.required != job.required_throughput:
            job = replace(job, required_throughput=entry.required)
        moved = None if entry.moved_s is None else self.start + timedelta(seconds=entry.moved_s)
        return JobStatus(
            job=job,
            state=entry.state,
            slots=entry.slots,
            since=self.start + timedelta(seconds=entry.since_s),
            partners=tuple(sorted(self.partners(entry))),
            moved_at=moved,
            moves=entry.moves,
            steps_done=entry.steps_at(self.now_s),
            power_limit_w=entry.limit_w,
        )

    def too_slow(self, after_s: float) -> list[str]:
        """Jobs that have run for so long where they are and report less than their promise."""
        return [
            entry.id
            for entry in self._placed.values()
            if entry.state is JobState.RUNNING
            and self.now_s - entry.since_s >= after_s - _SOON_S
            and entry.rate < KEPT * entry.required
        ]

    def next_check_s(self, after_s: float) -> float | None:
        """When the next promised job will have run for so long where it is."""
        times = [
            entry.since_s + after_s
            for entry in self._placed.values()
            if entry.required > 0 and entry.state is JobState.RUNNING
        ]
        return min((at for at in times if at > self.now_s + _SOON_S), default=None)

    def partners(self, entry: Entry) -> set[str]:
        """Jobs that share a GPU with it."""
        return {
            user
            for slot in entry.slots
            for gpu in slot.gpus
            for user in self.machines[slot.server].users[gpu]
            if user != entry.id
        }

    # -- bookkeeping -----------------------------------------------------------------------

    def _entry(self, job: str) -> Entry:
        if job not in self.jobs:
            raise ActionFailed("is not known", where=f"job {job}")
        return self.jobs[job]

    def _check(self, entry: Entry, slots: tuple[Slot, ...]) -> None:
        where = f"job {entry.id}"
        if not slots:
            raise ActionFailed("no slots", where=where)
        for slot in slots:
            machine = self.machines.get(slot.server)
            if machine is None or machine.power is PowerState.DOWN or machine.drain:
                raise ActionFailed(f"server {slot.server} cannot be used", where=where)
            for gpu in slot.gpus:
                if gpu >= machine.server.gpus or gpu in machine.dead:
                    raise ActionFailed(f"GPU {slot.server}/{gpu} cannot be used", where=where)
                others = machine.users[gpu]
                if len(others) - (entry.id in others) >= MOST_USERS:
                    raise ActionFailed(f"GPU {slot.server}/{gpu} is full", where=where)
        if entry.job.mode is Mode.GANG:
            count = sum(len(slot.gpus) for slot in slots)
            if count not in entry.job.gpu_counts:
                raise ActionFailed(f"does not run on {count} GPUs", where=where)

    def _seat(self, entry: Entry, slots: tuple[Slot, ...]) -> None:
        entry.count(self.now_s)
        entry.slots, entry.rate = slots, 0.0
        for slot in slots:
            machine = self.machines[slot.server]
            for gpu in slot.gpus:
                machine.users[gpu].append(entry.id)
            self.recount(machine)
        self._line_up(entry)

    def _unseat(self, entry: Entry) -> None:
        entry.count(self.now_s)
        slots, entry.slots, entry.rate = entry.slots, (), 0.0
        for slot in slots:
            machine = self.machines[slot.server]
            for gpu in slot.gpus:
                machine.users[gpu].remove(entry.id)
            self.recount(machine)
        self._line_up(entry)

    def _power_up(self, slots: tuple[Slot, ...]) -> None:
        for slot in slots:
            if self.machines[slot.server].power not in USABLE:
                self.switch(slot.server, on=True)

    def _regroup(self) -> None:
        """Make the lines anew if somebody put a job into `jobs`, or took one out, by hand."""
        if self.jobs.by_hand:
            self.jobs.by_hand = False
            self._waiting = {name: job for name, job in self.jobs.items() if not job.slots}
            self._placed = {name: job for name, job in self.jobs.items() if job.slots}
            self._shuffled = [False, False]

    def _line_up(self, entry: Entry) -> None:
        """Put a job into the line it belongs to: waiting or placed."""
        line, other = (
            (self._placed, self._waiting) if entry.slots else (self._waiting, self._placed)
        )
        other.pop(entry.id, None)
        if entry.id not in line:
            if line and next(reversed(line.values())).number > entry.number:
                self._shuffled[line is self._placed] = True
            line[entry.id] = entry

    # -- what the engine tells it ----------------------------------------------------------

    def take_orders(self) -> list[Order]:
        """The orders since last time, in the order in which they were given."""
        taken, self.orders = self.orders, []
        return taken

    def admit(self, entry: Entry) -> None:
        """A job came, or one that is known was changed; jobs come in order of arrival."""
        self.jobs.enter(entry)
        self._line_up(entry)

    def drop(self, job: str) -> None:
        """A job is through."""
        self.jobs.pop(job, None)
        self._waiting.pop(job, None)
        self._placed.pop(job, None)

    def seat_users(self, machine: Machine, users: list[list[str]]) -> None:
        """Say anew which jobs sit on which GPU of a server."""
        machine.users = users
        self.recount(machine)

    def recount(self, machine: Machine) -> None:
        """Count the seats and idle GPUs of a server again after one of them changed."""
        kind, idle, taken = machine.server.gpu_type, 0, 0
        for gpu, users in enumerate(machine.users):
            if users:
                taken += len(users)
            elif gpu not in machine.dead:
                idle += 1
        rooms = self._rooms[kind]
        before = rooms.get(machine.idle)
        if before is not None and before.pop(machine.number, None) is not None:
            self.idle[kind] -= machine.idle
        machine.idle, machine.taken = idle, taken
        if machine.power is not PowerState.DOWN and not machine.drain:
            rooms.setdefault(idle, {})[machine.number] = machine
            self.idle[kind] += idle


def _ordered(line: dict[str, Entry]) -> dict[str, Entry]:
    return {entry.id: entry for entry in sorted(line.values(), key=_NUMBER)}
