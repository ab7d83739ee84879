"""What cannot wait for the next window, told from two looks at the cluster.

`look` is pure: what was seen before and what is seen now give the events between them; each thing
is told once, when it begins. `gogh watch` keeps what was seen and sends the events; an
automation makes a replan of them, one for a whole storm.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

from gogh_core.domain import ClusterState, JobState, PowerState
from gogh_core.settings import Settings

__all__ = ["Event", "Kind", "Seen", "look"]

Kind = Literal[
    "server_lost",
    "gpu_lost",
    "urgent_job",
    "slo_missed",
    "power_cap_changed",
    "queue_changed",
    "still_waiting",
]
_LIVE = (JobState.WAITING, JobState.RUNNING, JobState.MOVING)
_SHOWN = 4
_STUCK_S = 30.0
"""A job that waits longer than this found no place in an increment."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, and why it matters."""

    kind: Kind
    target: str
    reason: str

    @property
    def name(self) -> str:
        """As Prefect's event feed shows it; what an increment answers is no reason to replan."""
        if self.kind == "queue_changed":
            return "gogh.queue.changed"
        return f"gogh.event.{self.kind}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last look saw."""

    down: tuple[str, ...] = ()
    lost_gpus: tuple[str, ...] = ()
    urgent: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    placed: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    power_cap_w: float | None = None

    def save(self, path: Path) -> None:
        """Keep it for the next look."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)), encoding="utf-8")
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """What the last look kept; None before the first one, or when it cannot be read."""
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            lists = {k: tuple(raw[k]) for k in _LISTS}
            return cls(**lists, power_cap_w=raw["power_cap_w"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


_LISTS = ("down", "lost_gpus", "urgent", "missed", "waiting", "placed", "stuck")


def look(
    before: Seen | None, state: ClusterState, *, missed: Collection[str], settings: Settings
) -> tuple[Seen, list[Event]]:
    """What is seen now, and what began since the look before; the first look tells nothing."""
    now = Seen(
        down=tuple(sorted(s.server.id for s in state.servers if s.power is PowerState.DOWN)),
        lost_gpus=tuple(
            sorted(f"{s.server.id}:{gpu}" for s in state.servers for gpu in s.foreign_gpus)
        ),
        urgent=tuple(
            sorted(
                status.job.id
                for status in state.jobs
                if status.state is JobState.WAITING
                and min(status.job.priority, settings.service.of(status.job.owner).max_priority)
                >= settings.prefect.urgent_priority
            )
        ),
        missed=tuple(sorted(missed)),
        waiting=_jobs(state, placed=False),
        placed=_jobs(state, placed=True),
        stuck=_stuck(state),
        power_cap_w=settings.allocation.power_cap_w,
    )
    return now, [] if before is None else _began(before, now, settings)


def _began(before: Seen, now: Seen, settings: Settings) -> list[Event]:
    minutes = settings.prefect.slo_missed_s / 60
    told: list[Event] = []
    for server in _new(before.down, now.down):
        told.append(Event("server_lost", server, f"server {server} is down"))
    for gpu in _new(before.lost_gpus, now.lost_gpus):
        if gpu.split(":")[0] not in now.down:
            told.append(Event("gpu_lost", gpu, f"GPU {gpu} is lost or taken by others"))
    for job in _new(before.urgent, now.urgent):
        told.append(Event("urgent_job", job, f"job {job} is urgent and waits"))
    for job in _new(before.missed, now.missed):
        reason = f"job {job} has missed its promise for {minutes:g} minutes"
        told.append(Event("slo_missed", job, reason))
    if before.power_cap_w != now.power_cap_w:
        cap = "none" if now.power_cap_w is None else f"{now.power_cap_w:,.0f} W"
        told.append(Event("power_cap_changed", "cluster", f"the power cap is now {cap}"))
    stuck = _new(before.stuck, now.stuck)
    if stuck:
        told.append(Event("still_waiting", "queue", f"{_some(stuck)} found no place beside others"))
    came, left = _new(before.waiting, now.waiting), _new(now.placed, before.placed)
    if came or left:
        said = [f"{_some(came)} came"] if came else []
        said += [f"{_some(left)} left"] if left else []
        told.append(Event("queue_changed", "queue", ", ".join(said)))
    return told


def _jobs(state: ClusterState, *, placed: bool) -> tuple[str, ...]:
    """Jobs that have a place, or that wait for one."""
    live = [status for status in state.jobs if status.state in _LIVE]
    return tuple(sorted(s.job.id for s in live if bool(s.slots) is placed))


def _stuck(state: ClusterState) -> tuple[str, ...]:
    waiting = [status for status in state.jobs if status.state is JobState.WAITING]
    return tuple(
        sorted(
            status.job.id
            for status in waiting
            if (state.at - (status.since or status.job.submitted_at)).total_seconds() > _STUCK_S
        )
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _new(before: Collection[str], now: Collection[str]) -> list[str]:
    return [name for name in now if name not in before]
