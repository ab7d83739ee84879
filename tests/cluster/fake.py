"""A cluster in memory that keeps the promises of `ClusterManager`, or breaks them when asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from gogh_core.cluster import Capabilities
from gogh_core.domain import (
    ClusterState,
    Descriptors,
    Job,
    JobState,
    JobStatus,
    Move,
    Placement,
    Plan,
    PowerState,
    Server,
    ServerStatus,
    ServerSwitch,
    Slot,
    Stop,
)
from gogh_core.errors import ActionFailed

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)


def job(name: str, *, owner: str = "ann") -> Job:
    return Job(name, Descriptors("resnet50", 64), LONG_AGO, owner=owner)


def at(server: str, *gpus: int) -> tuple[Slot, ...]:
    return (Slot(server, gpus),)


def running(name: str, slots: tuple[Slot, ...], **more) -> JobStatus:
    owner = more.pop("owner", "ann")
    since = more.pop("since", LONG_AGO)
    return JobStatus(job(name, owner=owner), JobState.RUNNING, slots, since=since, **more)


def waiting(name: str, **more) -> JobStatus:
    return JobStatus(job(name, **more), JobState.WAITING)


def server(name: str, gpus: int = 4, power: PowerState = PowerState.ON, **more) -> ServerStatus:
    return ServerStatus(Server(name, "v100", gpus, 300.0), power, **more)


def plan(
    name: str = "p1",
    *,
    places: dict[str, tuple[Slot, ...]] | None = None,
    moves: list[tuple[str, tuple[Slot, ...], tuple[Slot, ...]]] | None = None,
    stops: list[tuple[str, tuple[Slot, ...]]] | None = None,
    servers: dict[str, str] | None = None,
    partners: dict[str, str] | None = None,
    held: tuple[str, ...] = (),
) -> Plan:
    """A plan in few words; moved jobs get their placements too, `held` opens cycles of moves."""
    partners = partners or {}
    moves = moves or []
    wanted = {**(places or {}), **{name: target for name, _, target in moves}}
    return Plan(
        name,
        "optimal",
        "glpk",
        0.1,
        1000.0,
        1000.0,
        0.0,
        placements=tuple(Placement(j, s, partners.get(j), 5.0) for j, s in wanted.items()),
        moves=tuple(
            Move(i + 1, j, s, t, "saves 40 W", held=j in held) for i, (j, s, t) in enumerate(moves)
        ),
        stops=tuple(Stop(0, j, s, "others come first") for j, s in (stops or [])),
        servers=tuple(ServerSwitch(s, a) for s, a in (servers or {}).items()),
    )


@dataclass
class Fake:
    """Servers and jobs in two dictionaries."""

    servers: dict[str, ServerStatus]
    jobs: dict[str, JobStatus]
    name: str = "fake"
    real: bool = False
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(True, True, True, True, action_timeout_s=0)
    )
    sent: list[str] = field(default_factory=list)
    limits: dict[tuple[str, int], float] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    before: Callable[[str], None] = lambda key: None
    """Called before each action; may raise."""
    after: Callable[[str], None] = lambda key: None
    now: datetime = NOW

    @classmethod
    def of(cls, servers: list[ServerStatus], jobs: list[JobStatus], **more) -> Fake:
        return cls({s.server.id: s for s in servers}, {j.job.id: j for j in jobs}, **more)

    def state(self) -> ClusterState:
        return ClusterState(NOW, tuple(self.servers.values()), tuple(self.jobs.values()))

    def refused(self) -> dict[str, str]:
        return {}

    def clock(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _once(self, key: str) -> bool:
        self.before(key)
        if key in self.keys:
            return False
        self.keys.add(key)
        self.sent.append(key.split("/", 1)[1])
        return True

    def _job(self, name: str) -> JobStatus:
        if name not in self.jobs:
            raise ActionFailed(f"job {name} is not known")
        return self.jobs[name]

    def _put(self, name: str, slots: tuple[Slot, ...], partner: str | None) -> None:
        status = self._job(name)
        for slot in slots:
            if slot.server not in self.servers:
                raise ActionFailed(f"server {slot.server} is not known")
            for other in self.jobs.values():
                shared = {(s.server, g) for s in other.slots for g in s.gpus} & {
                    (slot.server, g) for g in slot.gpus
                }
                if shared and other.job.id not in (name, partner):
                    raise ActionFailed(f"GPU {min(shared)} is taken by {other.job.id}")
        self.jobs[name] = replace(status, state=JobState.RUNNING, slots=slots, since=NOW)

    def place(self, job, slots, *, partner, power_limit_w, key):
        self._job(job)
        if self._once(key):
            self._put(job, slots, partner)
        self.after(key)

    def move(self, job, slots, *, partner, power_limit_w, key):
        self._job(job)
        if self._once(key):
            self._put(job, slots, partner)
        self.after(key)

    def hold(self, job, *, key):
        status = self._job(job)
        if self._once(key):
            self.jobs[job] = replace(status, state=JobState.WAITING, slots=())
        self.after(key)

    def release(self, job, *, key):
        self._job(job)
        self._once(key)

    def switch(self, server, *, on, key):
        if server not in self.servers:
            raise ActionFailed(f"server {server} is not known")
        if self._once(key):
            power = PowerState.ON if on else PowerState.OFF
            self.servers[server] = replace(self.servers[server], power=power)
        self.after(key)

    def set_power_limit(self, server, gpu, watts, *, key):
        if self._once(key):
            self.limits[server, gpu] = watts
        self.after(key)
