"""The words of GOGH as frozen types; units are part of the names, all times are UTC.

What a cluster is (`Server`, `Job`, `ClusterState`), what is promised and estimated
(`Descriptors`, `Estimate`), when (`Cycle`), and what is decided (`Plan` and its parts).
The problem that a plan answers lives in `allocation`, the only room that reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from numbers import Integral, Real
from typing import Any, Literal, Self

from gogh_core.errors import InvalidInput, InvalidPlan

__all__ = [
    "ClusterState",
    "Cycle",
    "Descriptors",
    "Estimate",
    "Job",
    "JobKind",
    "JobState",
    "JobStatus",
    "Mode",
    "Move",
    "Network",
    "Placement",
    "Plan",
    "PlanStatus",
    "PowerState",
    "Server",
    "ServerStatus",
    "ServerSwitch",
    "Slot",
    "Stop",
    "Waiting",
    "job_class",
    "utc",
]


def _need(condition: bool, what: str, where: str) -> None:
    if not condition:
        raise InvalidInput(what, where=where)


def _positive(value: float | None, name: str, where: str, *, zero: bool = True) -> None:
    if value is None:
        return
    good = math.isfinite(value) and (value >= 0 if zero else value > 0)
    _need(good, f"{name} is {value}, not a {'number >= 0' if zero else 'number > 0'}", where)


def utc(moment: datetime) -> datetime:
    """The same moment in UTC; a time without a zone is refused."""
    if moment.tzinfo is None:
        raise InvalidInput(f"time {moment.isoformat()} has no zone", todo="give it in UTC")
    return moment.astimezone(UTC)


class JobKind(StrEnum):
    """What the job does with its GPUs."""

    TRAINING = "training"
    INFERENCE = "inference"


class Mode(StrEnum):
    """How the job uses several GPUs."""

    GANG = "gang"
    SPREAD = "spread"


class JobState(StrEnum):
    """Where a job is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    MOVING = "moving"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


class PowerState(StrEnum):
    """Whether a server can be used now."""

    ON = "on"
    OFF = "off"
    SWITCHING_ON = "switching_on"
    SWITCHING_OFF = "switching_off"
    DOWN = "down"


class Network(StrEnum):
    """Where an estimate came from."""

    MEASURED = "measured"
    P2 = "P2"
    P1 = "P1"


def job_class(model: str, batch_size: int | None) -> str:
    """The name of a job's class, as throughput tables spell it in `job_type`."""
    return model if batch_size is None else f"{model} (batch size {batch_size})"


@dataclass(frozen=True, slots=True)
class Descriptors:
    """What is known of a job before it runs; None means not declared."""

    model: str
    batch_size: int | None = None
    kind: JobKind = JobKind.TRAINING
    family: str | None = None
    precision: str | None = None
    parameters: float | None = None
    flops_per_step: float | None = None
    bytes_per_step: float | None = None
    memory_bytes: float | None = None

    def __post_init__(self) -> None:
        where = f"descriptors of {self.model!r}"
        _need(bool(self.model.strip()), "model is empty", where)
        for name in ("batch_size", "parameters", "flops_per_step", "bytes_per_step"):
            _positive(getattr(self, name), name, where, zero=False)
        _positive(self.memory_bytes, "memory_bytes", where, zero=False)

    @property
    def job_class(self) -> str:
        """The class this job belongs to."""
        return job_class(self.model, self.batch_size)


@dataclass(frozen=True, slots=True)
class Slot:
    """GPUs of one server, by index, in ascending order."""

    server: str
    gpus: tuple[int, ...]

    def __post_init__(self) -> None:
        _need(bool(self.gpus), "no GPU index", f"slot on {self.server}")
        _need(
            len(set(self.gpus)) == len(self.gpus) and min(self.gpus) >= 0,
            f"GPU indices {list(self.gpus)} are not distinct numbers from 0",
            f"slot on {self.server}",
        )

    def to_dict(self) -> dict[str, Any]:
        """As it stands in problem and plan files."""
        return {"server": self.server, "gpus": list(self.gpus)}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """From a problem or plan file."""
        if not isinstance(raw, Mapping):
            raise TypeError(f"slot is {raw!r}, not an object with server and gpus")
        if not isinstance(raw["gpus"], list | tuple):
            raise TypeError(f"gpus is {raw['gpus']!r}, not a list")
        return cls(_text(raw["server"]), tuple(sorted(_whole(gpu) for gpu in raw["gpus"])))


@dataclass(frozen=True, slots=True)
class Server:
    """A machine with n GPUs of one type."""

    id: str
    gpu_type: str
    gpus: int
    base_w: float
    off_w: float = 0.0
    switch_cost_j: float = 0.0

    def __post_init__(self) -> None:
        where = f"server {self.id}"
        _need(self.gpus > 0, f"has {self.gpus} GPUs", where)
        for name in ("base_w", "off_w", "switch_cost_j"):
            _positive(getattr(self, name), name, where)


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A server as the cluster manager sees it now."""

    server: Server
    power: PowerState = PowerState.ON
    drain: bool = False
    keep_on: bool = False
    foreign_gpus: tuple[int, ...] = ()
    """GPUs that are dead or taken by work that is not ours."""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What somebody asked for; `required_throughput` 0 means best effort."""

    id: str
    descriptors: Descriptors
    submitted_at: datetime
    owner: str = ""
    name: str = ""
    mode: Mode = Mode.GANG
    gpu_counts: tuple[int, ...] = (1,)
    max_gpus: int = 1
    required_throughput: float = 0.0
    unit: str = "steps/s"
    total_steps: float | None = None
    deadline_at: datetime | None = None
    priority: float = 1.0
    shareable: bool | Literal["owner"] = True
    movable: bool = True
    move_cost_j: float = 0.0
    surplus_j_per_step: float = 0.0

    def __post_init__(self) -> None:
        where = f"job {self.id}"
        _need(bool(self.id), "id is empty", "job")
        _need(
            bool(self.gpu_counts) and min(self.gpu_counts) > 0,
            f"gpu_counts {list(self.gpu_counts)} are not numbers from 1",
            where,
        )
        _need(self.max_gpus > 0, f"max_gpus is {self.max_gpus}", where)
        for name in ("required_throughput", "priority", "move_cost_j", "surplus_j_per_step"):
            _positive(getattr(self, name), name, where)
        _positive(self.total_steps, "total_steps", where)
        utc(self.submitted_at)

    @property
    def job_class(self) -> str:
        """The class this job belongs to."""
        return self.descriptors.job_class


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job as the cluster manager sees it now."""

    job: Job
    state: JobState
    slots: tuple[Slot, ...] = ()
    since: datetime | None = None
    partners: tuple[str, ...] = ()
    moved_at: datetime | None = None
    moves: int = 0
    steps_done: float = 0.0
    power_limit_w: float | None = None
    starting: tuple[Slot, ...] = ()
    """Slots of a running spread job whose replica has not begun yet."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything the cluster manager knows, at one moment."""

    at: datetime
    servers: tuple[ServerStatus, ...]
    jobs: tuple[JobStatus, ...]

    def job(self, job_id: str) -> JobStatus | None:
        """The job of that id, or None."""
        return next((status for status in self.jobs if status.job.id == job_id), None)

    def server(self, server_id: str) -> ServerStatus | None:
        """The server of that id, or None."""
        return next((status for status in self.servers if status.server.id == server_id), None)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Throughput of a job on a GPU type, alone or with a partner, given that it runs."""

    job_class: str
    gpu_type: str
    gpus: int
    partner_class: str | None
    mean: float
    low: float
    high: float
    feasible_probability: float
    network: Network
    partner_mean: float | None = None
    partner_low: float | None = None
    partner_high: float | None = None


@dataclass(frozen=True, slots=True, order=True)
class Cycle:
    """One planning of one window: revision 0 is the schedule's, each replan takes the next."""

    window_start: datetime
    revision: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "window_start", utc(self.window_start))
        _need(self.revision >= 0, f"revision is {self.revision}", "cycle")

    @property
    def id(self) -> str:
        """Such as `20260105T090500Z-0`."""
        return f"{self.window_start:%Y%m%dT%H%M%SZ}-{self.revision}"

    @classmethod
    def at(cls, moment: datetime, window_s: int, revision: int = 0) -> Self:
        """The cycle of the window that holds the moment; windows are counted from midnight UTC."""
        moment = utc(moment)
        midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        index = int((moment - midnight).total_seconds() // window_s)
        return cls(midnight + timedelta(seconds=index * window_s), revision)


PlanStatus = Literal["optimal", "feasible", "time_limit", "greedy", "infeasible"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a job (or one slot of a spread job) runs in the window."""

    job: str
    slots: tuple[Slot, ...]
    partner: str | None
    throughput: float
    power_limit_w: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As in a plan file; the partner is called `with` there."""
        return {
            "job": self.job,
            "slots": [slot.to_dict() for slot in self.slots],
            "with": self.partner,
            "throughput": self.throughput,
            "power_limit_w": self.power_limit_w,
        }


@dataclass(frozen=True, slots=True)
class Move:
    """A running job that changes servers, GPUs or their number."""

    step: int
    job: str
    source: tuple[Slot, ...]
    target: tuple[Slot, ...]
    reason: str
    held: bool = False
    """It gives its GPUs up in step 0 and is held until its own step: this breaks a cycle."""

    def to_dict(self) -> dict[str, Any]:
        """As in a plan file."""
        raw: dict[str, Any] = {
            "step": self.step,
            "job": self.job,
            "from": [slot.to_dict() for slot in self.source],
            "to": [slot.to_dict() for slot in self.target],
            "reason": self.reason,
        }
        return {**raw, "held": True} if self.held else raw


@dataclass(frozen=True, slots=True)
class Stop:
    """A running job that has to wait."""

    step: int
    job: str
    source: tuple[Slot, ...]
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """As in a plan file."""
        return {
            "step": self.step,
            "job": self.job,
            "from": [slot.to_dict() for slot in self.source],
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class ServerSwitch:
    """A server that is switched on or off."""

    id: str
    action: Literal["on", "off"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job without a place, and why."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is decided for one window (`gogh.plan/1`)."""

    id: str
    status: PlanStatus
    solver: str
    solve_s: float
    cost_w: float
    bound_w: float
    gap: float
    placements: tuple[Placement, ...] = ()
    moves: tuple[Move, ...] = ()
    stops: tuple[Stop, ...] = ()
    servers: tuple[ServerSwitch, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    versions: Mapping[str, Any] = field(default_factory=dict)
    certificate: Mapping[str, Any] = field(default_factory=dict)
    spent: Mapping[str, Any] = field(default_factory=dict)
    """What the cost consists of, in watts by kind."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a plan file."""
        raw: dict[str, Any] = {"schema": "gogh.plan/1"}
        for name in ("id", "status", "solver", "solve_s", "cost_w", "bound_w", "gap"):
            raw[name] = getattr(self, name)
        for name in ("placements", "moves", "stops"):
            raw[name] = [part.to_dict() for part in getattr(self, name)]
        raw["servers"] = [asdict(part) for part in self.servers]
        raw["waiting"] = [asdict(part) for part in self.waiting]
        raw["versions"] = dict(self.versions)
        raw["certificate"] = dict(self.certificate)
        raw["spent"] = dict(self.spent)
        raw["notes"] = list(self.notes)
        return raw

    def to_json(self) -> str:
        """One JSON document; the same plan always gives the same text."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], *, where: str = "plan") -> Self:
        """A plan from a file; every fault of its shape is listed at once."""
        faults: list[str] = []
        if not isinstance(raw, Mapping):
            raise InvalidPlan(["it is no JSON object"], where=where)
        if raw.get("schema") != "gogh.plan/1":
            faults.append(f"schema is {raw.get('schema')!r}, not 'gogh.plan/1'")
        parts: dict[str, Any] = {}
        for name, parse in _PARTS.items():
            entries = raw.get(name, [])
            if not isinstance(entries, list):
                faults.append(f"{name} is no list")
                continue
            parsed = []
            for index, entry in enumerate(entries):
                try:
                    parsed.append(parse(entry))
                except (KeyError, TypeError, ValueError, AttributeError, InvalidInput) as error:
                    kind = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                    faults.append(f"{name}[{index}] {kind}")
            parts[name] = tuple(parsed)
        plain: dict[str, Any] = {}
        for name, kind in _PLAIN.items():
            try:
                plain[name] = kind(raw[name])
            except KeyError:
                faults.append(f"{name} is missing")
            except (TypeError, ValueError):
                faults.append(f"{name} is {_short(raw[name])}")
        extra: dict[str, Any] = {}
        for name in ("versions", "certificate", "spent"):
            extra[name] = raw.get(name, {})
            if not isinstance(extra[name], Mapping):
                faults.append(f"{name} is {_short(extra[name])}, not an object")
        notes = raw.get("notes", [])
        if not isinstance(notes, list | tuple):
            faults.append(f"notes is {_short(notes)}, not a list")
        if faults:
            raise InvalidPlan(faults, where=where)
        return cls(**plain, **parts, **extra, notes=tuple(map(str, notes)))


_MOST = 10**9
"""No cluster has a GPU or a plan a step beyond this."""


def _short(raw: Any) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise ValueError(f"{_short(raw)} is no text")
    return raw


def _whole(raw: Any) -> int:
    good = isinstance(raw, Integral) or (isinstance(raw, float) and raw.is_integer())
    if isinstance(raw, bool) or not good or abs(raw) > _MOST:
        raise ValueError(f"{_short(raw)} is no whole number")
    return int(raw)


def _flag(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise ValueError(f"{_short(raw)} is not true or false")
    return raw


def _slots(raw: Any) -> tuple[Slot, ...]:
    if not isinstance(raw, list | tuple):
        raise ValueError(f"{_short(raw)} is no list of slots")
    return tuple(Slot.from_dict(entry) for entry in raw)


def _number(raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, Real):
        raise ValueError(f"{_short(raw)} is no number")
    try:
        return float(raw)
    except OverflowError:
        raise ValueError(f"{_short(raw)} is beyond all numbers") from None


def _limit(raw: Any) -> float | None:
    return None if raw is None else _number(raw)


_PARTS: dict[str, Any] = {
    "placements": lambda e: Placement(
        _text(e["job"]),
        _slots(e["slots"]),
        None if e.get("with") is None else _text(e["with"]),
        _number(e["throughput"]),
        _limit(e.get("power_limit_w")),
    ),
    "moves": lambda e: Move(
        _whole(e["step"]),
        _text(e["job"]),
        _slots(e["from"]),
        _slots(e["to"]),
        str(e.get("reason", "")),
        _flag(e.get("held", False)),
    ),
    "stops": lambda e: Stop(
        _whole(e["step"]), _text(e["job"]), _slots(e["from"]), str(e.get("reason", ""))
    ),
    "servers": lambda e: ServerSwitch(_text(e["id"]), _action(e["action"])),
    "waiting": lambda e: Waiting(_text(e["job"]), str(e.get("reason", ""))),
}


def _action(raw: Any) -> Literal["on", "off"]:
    if raw == "on":
        return "on"
    if raw == "off":
        return "off"
    raise ValueError(f"action is {raw!r}, not 'on' or 'off'")


def _status(raw: Any) -> str:
    known = ("optimal", "feasible", "time_limit", "greedy", "infeasible")
    if not isinstance(raw, str) or raw not in known:
        raise ValueError(raw)
    return str(raw)


_PLAIN: dict[str, Any] = {
    "id": _text,
    "status": _status,
    "solver": _text,
    "solve_s": _number,
    "cost_w": _number,
    "bound_w": _number,
    "gap": _number,
}
