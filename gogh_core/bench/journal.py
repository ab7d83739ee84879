"""What the journal costs when a plan has 10,000 actions.

The manager is one that answers at once, so that what is measured is the journal, the order of the
actions and the comparison with the state; the ratio is against a plan of a tenth of the size.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gogh_core.cluster import Capabilities, ExecutionReport, carry_out
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
    Slot,
    Stop,
)
from gogh_core.errors import NotCapable
from gogh_core.settings import Settings
from gogh_core.store import Store

__all__ = ["Load", "journal_load"]

_AT = datetime(2026, 1, 5, 9, tzinfo=UTC)
_LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
_GPUS = 8


class _Instant:
    """A cluster that does at once what it is told, and nothing else."""

    name = "instant"
    real = False
    capabilities = Capabilities(True, True, False, False, action_timeout_s=0)

    def __init__(self, servers: tuple[ServerStatus, ...], jobs: tuple[JobStatus, ...]) -> None:
        self._servers = servers
        self._jobs = {status.job.id: status for status in jobs}

    def state(self) -> ClusterState:
        return ClusterState(_AT, self._servers, tuple(self._jobs.values()))

    def refused(self) -> dict[str, str]:
        return {}

    def clock(self) -> datetime:
        return _AT

    def advance(self, seconds: float) -> None:
        pass

    def _put(self, job: str, slots: tuple[Slot, ...]) -> None:
        kind = JobState.RUNNING if slots else JobState.WAITING
        self._jobs[job] = replace(self._jobs[job], state=kind, slots=slots)

    def place(
        self,
        job: str,
        slots: tuple[Slot, ...],
        *,
        partner: str | None,
        power_limit_w: float | None,
        key: str,
    ) -> None:
        self._put(job, slots)

    move = place

    def hold(self, job: str, *, key: str) -> None:
        self._put(job, ())

    def release(self, job: str, *, key: str) -> None:
        raise NotCapable("it has no scheduler of its own")

    def switch(self, server: str, *, on: bool, key: str) -> None:
        raise NotCapable("it switches nothing")

    def set_power_limit(self, server: str, gpu: int, watts: float, *, key: str) -> None:
        raise NotCapable("it sets no limits")


@dataclass(frozen=True, slots=True)
class Load:
    """What a plan of so many actions took."""

    actions: int
    seconds: float
    report: ExecutionReport

    @property
    def per_action_ms(self) -> float:
        """Milliseconds for each action."""
        return 1000 * self.seconds / self.actions


def _case(actions: int) -> tuple[_Instant, Plan]:
    """Half of the actions place jobs where the other half's moves and stops have freed GPUs."""
    leaving = actions // 2
    moving = leaving // 2
    servers = tuple(
        ServerStatus(Server(f"s{n}", "v100", _GPUS, 300.0), PowerState.ON)
        for n in range(-(-(leaving + moving) // _GPUS))
    )

    def cell(index: int) -> tuple[Slot, ...]:
        return (Slot(f"s{index // _GPUS}", (index % _GPUS,)),)

    def job(name: str) -> Job:
        return Job(name, Descriptors("resnet50", 64), _LONG_AGO, owner="bench")

    running = tuple(
        JobStatus(job(f"old{n}"), JobState.RUNNING, cell(n), since=_LONG_AGO)
        for n in range(leaving)
    )
    waiting = tuple(JobStatus(job(f"new{n}"), JobState.WAITING) for n in range(leaving))
    places = [Placement(f"new{n}", cell(n), None, 1.0) for n in range(leaving)]
    places += [Placement(f"old{n}", cell(leaving + n), None, 1.0) for n in range(moving)]
    plan = Plan(
        f"load-{actions}",
        "optimal",
        "none",
        0.0,
        0.0,
        0.0,
        0.0,
        placements=tuple(places),
        moves=tuple(Move(1, f"old{n}", cell(n), cell(leaving + n), "") for n in range(moving)),
        stops=tuple(Stop(0, f"old{n}", cell(n), "") for n in range(moving, leaving)),
    )
    return _Instant(servers, (*running, *waiting)), plan


def journal_load(settings: Settings, actions: int) -> Load:
    """Carry out a plan of so many actions, every second of which waits for another."""
    store = Store(settings)
    store.migrate()
    cluster, plan = _case(actions)
    all_at_once = {"max_moves": actions, "approve_stop_share": 1.0}
    guards = settings.guards.model_copy(update=all_at_once)
    started = time.perf_counter()
    report = carry_out(
        plan,
        cluster.state(),
        manager=cluster,
        store=store,
        settings=settings.model_copy(update={"guards": guards}),
        cycle_id="bench",
        now=_AT,
    )
    return Load(len(report.records), time.perf_counter() - started, report)
