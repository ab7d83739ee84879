"""Lucid-like packing: no preemption, shortest estimate first, two jobs on a GPU if both stay fast.

Hu et al., "Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep Learning Training
Jobs" (ASPLOS 2023). Jobs are taken by estimated GPU-seconds. A job is packed beside another of the
same size if both keep most of the speed they have alone; otherwise it gets GPUs of its own. At most
two jobs share, and nobody is moved. Simplified: the interference comes from the believed rates of
the pair, not from three classes of utilisation; there is no profiling cluster; the estimated run
time is the declared steps over the believed rate, not a model of past jobs; both promises must hold
as well. Services come first and are not packed; idle servers are switched off.
"""

from __future__ import annotations

from gogh_core.domain import Mode, Slot
from gogh_core.simulation.board import Board, Entry, Rates, Why
from gogh_core.simulation.policies.common import INF, Desk, Key, Queue
from gogh_core.simulation.policies.ways import may_share, thriftiest

__all__ = ["Lucid"]

_KEEPS = 0.75
"""Of the speed it has alone, what each of two packed jobs must keep. Of 0.75, 0.85 and 0.92 this
gave the least energy at equal promises on seeds 100 to 107 of the embedded cluster."""
_Size = tuple[str, int, str]
"""GPU type, GPUs, class of the job that is there."""


class Lucid:
    """Packs jobs that hardly disturb each other."""

    every_s: float | None = None
    on_events = True

    def __init__(self, rates: Rates, *, name: str = "lucid") -> None:
        self.name = name
        self._desk = Desk(rates, thriftiest)
        self._queue = Queue(self._estimate)
        self._hosts: dict[_Size, list[Entry]] = {}
        self._by_owner = True
        self._speeds: dict[tuple[_Size, str], tuple[float, float, float] | None] = {}

    def act(self, board: Board, why: Why) -> None:
        """Place the shortest first: packed if that is harmless, else alone."""
        changed = self._desk.open(board)
        if len(changed) == len(board.machines):
            self._speeds.clear()
        self._desk.serve_first()
        line = self._queue.waiting(board) if changed else self._desk.line(self._queue)
        if line:
            self._find_hosts(board)
            self._place_line(board, line)
        board.idle_off()

    def _place_line(self, board: Board, line: list[Entry]) -> None:
        passed: dict[tuple[object, ...], float] = {}
        for entry in line:
            job = entry.job
            group, need = self._desk.group(entry)
            kind = (group, job.shareable, job.owner if self._by_owner else "")
            if need >= passed.get(kind, INF) or self._pack(entry):
                continue
            if self._desk.place_alone(entry):
                self._offer(board, entry)
            else:
                passed[kind] = need

    def _estimate(self, entry: Entry) -> Key:
        ways = self._desk.beliefs.ways(entry, self._desk.prefer)
        left_s = self._desk.seconds_left(entry) * ways[0].gpus if ways else float("inf")
        return left_s, entry.arrived_s, entry.job.id

    def _find_hosts(self, board: Board) -> None:
        self._hosts = {}
        self._by_owner = any(entry.job.shareable == "owner" for entry in board.jobs.values())
        for entry in board.jobs.values():
            if entry.slots:
                self._offer(board, entry)

    def _offer(self, board: Board, entry: Entry) -> None:
        """Note a gang that is alone on GPUs of one server."""
        job = entry.job
        if job.mode is Mode.SPREAD or job.shareable is False or len(entry.slots) != 1:
            return
        slot = entry.slots[0]
        machine = board.machines[slot.server]
        if not machine.drain and len(machine.users[slot.gpus[0]]) == 1:
            size = (machine.server.gpu_type, len(slot.gpus), job.job_class)
            self._hosts.setdefault(size, []).append(entry)

    def _pack(self, entry: Entry) -> bool:
        """Put the job beside the one that it gets on with best; whether there was one."""
        if entry.job.shareable is False or entry.job.mode is Mode.SPREAD:
            return False
        found = []
        for size, hosts in self._hosts.items():
            if not hosts or size[1] not in entry.job.gpu_counts:
                continue
            pair = self._together(size, entry.job.job_class)
            if pair is None or pair[1] < entry.job.required_throughput:
                continue
            host = self._willing(hosts, entry, pair[2])
            if host is not None:
                found.append((-pair[0], host.job.id, size, host))
        if not found:
            return False
        _, _, size, host = min(found, key=lambda option: option[:2])
        self._hosts[size].remove(host)
        self._desk.place(entry, (Slot(host.slots[0].server, host.slots[0].gpus),))
        return True

    def _together(self, size: _Size, new: str) -> tuple[float, float, float] | None:
        """The smaller share of speed kept, the newcomer's rate, the host's; None: too slow."""
        if (size, new) not in self._speeds:
            self._speeds[size, new] = self._tried(*size, new)
        return self._speeds[size, new]

    def _tried(
        self, kind: str, count: int, there: str, new: str
    ) -> tuple[float, float, float] | None:
        beliefs = self._desk.beliefs
        alone, other = beliefs.run(kind, count, (new,)), beliefs.run(kind, count, (there,))
        both = beliefs.run(kind, count, (there, new))
        if alone is None or other is None or both is None:
            return None
        theirs, ours = both.throughput
        speed = min(ours / alone.throughput[0], theirs / other.throughput[0])
        return (speed, ours, theirs) if speed >= _KEEPS else None

    @staticmethod
    def _willing(hosts: list[Entry], entry: Entry, rate: float) -> Entry | None:
        """The first host that allows it and keeps its own promise."""
        for host in hosts:
            if rate >= host.job.required_throughput and may_share(entry.job, host.job):
                return host
        return None
