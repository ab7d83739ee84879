"""What the embedded cluster remembers of each job and server, and how it is written down.

Times are seconds after the clock began. `to_dict` and `from_dict` keep every bit: a world that was
written and read again goes on exactly as the one that was not.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self, get_args, get_type_hints

from gogh_core.cluster import check_job, check_server
from gogh_core.domain import JobState, JobStatus, PowerState, Server, ServerStatus, Slot
from gogh_core.errors import InvalidInput
from gogh_core.simulation.arrivals import Demand, demand_from, demand_to

__all__ = ["CAUSES", "JobRecord", "Place", "ServerRecord", "Totals"]

CAUSES = ("window", "planned", "switching", "starting", "moving", "slow")
"""Why a promise is not kept at some moment: nobody has decided about the job since it waits; a
decision left it waiting; its server is switching on; it starts; it moves; it runs too slowly."""


def _plain(record: Any) -> dict[str, Any]:
    """The fields of a flat record; `asdict` would copy each of them, which takes most of a save."""
    return {name: getattr(record, name) for name in record.__slots__}


_WORKED_OUT = frozenset(("rates", "rate", "required", "standing", "ends_s", "gpu_w", "on", "busy"))


@cache
def _stored(names: tuple[str, ...]) -> tuple[str, ...]:
    """The fields that are written down; the others are worked out again from them."""
    return tuple(name for name in names if name not in _WORKED_OUT)


_FLAT = (bool, int, float, str)
_LARGEST = 1e15
# Seconds after the clock began: some thirty years before it to a hundred and fifty after.
_SECONDS = (-1e9, 5e9)


def _flat(type_: type[Any]) -> dict[str, tuple[type[Any], ...]]:
    """The fields of a record that hold one plain value, with the types that it may have."""
    found = {}
    for name, hint in get_type_hints(type_).items():
        kinds = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if all(kind in _FLAT or kind is type(None) for kind in kinds):
            found[name] = tuple(kinds)
    return found


class _Plain:
    """Whether the plain fields of a record have their types, and numbers that can be."""

    def __init__(self) -> None:
        self._fields: dict[str, dict[str, tuple[type[Any], ...]]] = {}

    def check(self, record: Any) -> None:
        """Refuse the record by the first field that is wrong."""
        kind = type(record)
        if kind.__name__ not in self._fields:
            self._fields[kind.__name__] = _flat(kind)
        for name, kinds in self._fields[kind.__name__].items():
            value = getattr(record, name)
            if type(value) not in kinds and not (float in kinds and type(value) is int):
                raise InvalidInput(f"{name} is {ascii(value)[:60]}")
            if type(value) in (int, float):
                _check_number(name, value)


def _check_number(name: str, value: Any) -> None:
    low, high = _SECONDS if name.endswith("_s") else (0.0, _LARGEST)
    if type(value) not in (int, float) or not low <= value <= high:
        raise InvalidInput(f"{name} is {ascii(value)[:60]}")


_plain_fields = _Plain()


@dataclass(slots=True)
class Place:
    """Where a gang, or one replica of a spread job, sits."""

    server: str
    gpus: tuple[int, ...]
    ready_s: float
    rank: int = 0
    steps: float = 0.0
    """Done by this replica since it began."""

    @property
    def slot(self) -> Slot:
        """As plans and states say it."""
        return Slot(self.server, self.gpus)


@dataclass(slots=True, eq=False)
class JobRecord:
    """A job and how far it is."""

    demand: Demand
    state: JobState = JobState.WAITING
    places: list[Place] = field(default_factory=list)
    steps: float = 0.0
    saved: float = 0.0
    """Steps that a restart does not lose."""
    saved_s: float = 0.0
    since_s: float = 0.0
    started_s: float | None = None
    moved_s: float | None = None
    ended_s: float | None = None
    moves: int = 0
    attempt: int = 0
    ranks: int = 0
    """Replicas begun so far; the next one's rank."""
    failures: int = 0
    limit_w: float | None = None
    released: bool = False
    pending: str | None = None
    """The event to tell when it really runs: 'started' or 'moved'."""
    partners: dict[tuple[str, tuple[int, ...]], str | None] = field(default_factory=dict)
    """Who shares each place (server, GPUs) with it, as last told."""
    promised_s: float = 0.0
    attained_s: float = 0.0
    waited_s: float = 0.0
    number: int = 0
    """Its place in the order of arrival."""
    at_s: float = 0.0
    """Up to when steps, seconds and GPU-seconds were counted."""
    gpu_s: float = 0.0
    """GPU-seconds it has had."""
    stops: int = 0
    """How often it was told to stop and wait."""
    lost: float = 0.0
    """Steps that were done and undone."""
    decided: bool = False
    """Somebody has decided since it began to wait, and left it waiting."""
    present_s: float = 0.0
    """Job-seconds of all jobs present, up to its arrival."""
    crowd: float = 0.0
    """Jobs present on average from its arrival to its end."""
    rates: list[float] = field(default_factory=list)
    rate: float = 0.0
    """Steps per second of each place and of the job, worked out when its place is touched."""
    required: float = 0.0
    standing: tuple[int, int] | None = None
    """GPUs it has and what became of its promise, as counted by `accounts`."""
    ends_s: float | None = None
    """When it will be through at this rate."""

    @property
    def id(self) -> str:
        """The job's id."""
        return self.demand.job.id

    @property
    def active(self) -> bool:
        """Whether it still wants to run."""
        return self.state in (JobState.WAITING, JobState.RUNNING, JobState.MOVING)

    def to_dict(self) -> dict[str, Any]:
        """As it stands on disk."""
        raw = {name: getattr(self, name) for name in _stored(tuple(self.__slots__))}
        raw["demand"] = demand_to(self.demand)
        raw["state"] = self.state.value
        raw["places"] = [_plain(place) for place in self.places]
        raw["partners"] = [
            [server, gpus, partner] for (server, gpus), partner in self.partners.items()
        ]
        return raw

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Self:
        """From disk."""
        own = dict(raw)
        own["demand"] = demand_from(own["demand"])
        own["state"] = JobState(own["state"])
        own["places"] = [
            Place(**{**place, "gpus": tuple(place["gpus"])}) for place in own["places"]
        ]
        own["partners"] = {
            (server, tuple(gpus)): partner for server, gpus, partner in own["partners"]
        }
        record = cls(**own)
        record._check()
        return record

    def _check(self) -> None:
        _plain_fields.check(self)
        _plain_fields.check(self.demand)
        for place in self.places:
            _plain_fields.check(place)
        places = tuple(place.slot for place in self.places)
        check_job(JobStatus(self.demand.job, self.state, places, moves=self.moves))


@dataclass(slots=True)
class ServerRecord:
    """A server and what is on, dead or silent in it."""

    server: Server
    power: PowerState = PowerState.ON
    ready_s: float = 0.0
    """When the switch that is under way ends."""
    since_s: float = 0.0
    drain: bool = False
    dead: list[int] = field(default_factory=list)
    silent: bool = False
    """Its telemetry does not come."""
    limits: dict[int, float] = field(default_factory=dict)
    energy_j: list[float] = field(default_factory=list)
    """Each GPU's counter."""
    at_s: float = 0.0
    """Up to when the counters were counted."""
    number: int = 0
    """Its place in the order of the servers."""
    gpu_w: list[float] = field(default_factory=list)
    """What each GPU draws, worked out when the server is touched."""
    on: int = 0
    busy: int = 0

    def __post_init__(self) -> None:
        if not self.energy_j:
            self.energy_j = [0.0] * self.server.gpus
        if not self.gpu_w:
            self.gpu_w = [0.0] * self.server.gpus

    def to_dict(self) -> dict[str, Any]:
        """As it stands on disk."""
        raw = {name: getattr(self, name) for name in _stored(tuple(self.__slots__))}
        raw["server"] = _plain(self.server)
        raw["power"] = self.power.value
        raw["limits"] = {str(gpu): watts for gpu, watts in sorted(self.limits.items())}
        return raw

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Self:
        """From disk."""
        own = dict(raw)
        own["server"] = Server(**own["server"])
        own["power"] = PowerState(own["power"])
        own["limits"] = {int(gpu): watts for gpu, watts in own["limits"].items()}
        record = cls(**own)
        record._check()
        return record

    def _check(self) -> None:
        _plain_fields.check(self)
        check_server(
            ServerStatus(self.server, self.power, self.drain, foreign_gpus=tuple(self.dead))
        )
        for watts in self.limits.values():
            _check_number("limits", watts)
        for joules in self.energy_j:
            _check_number("energy_j", joules)
        if len(self.energy_j) != self.server.gpus:
            raise InvalidInput(f"energy_j has {len(self.energy_j)} counters")


@dataclass(slots=True)
class Totals:
    """What has been added up since the clock began."""

    energy_j: float = 0.0
    gpu_energy_j: float = 0.0
    promised_s: float = 0.0
    """Job-seconds of jobs with a promise, from submission to the end."""
    attained_s: float = 0.0
    """Those in which the promise was kept."""
    running_s: float = 0.0
    waiting_s: float = 0.0
    busy_gpu_s: float = 0.0
    on_gpu_s: float = 0.0
    finished: int = 0
    failed: int = 0
    submitted: int = 0
    moves: int = 0
    deadlines: int = 0
    deadlines_met: int = 0
    lost_steps_s: float = 0.0
    """Job-seconds of work that moves, stops and faults undid."""
    work_s: float = 0.0
    """Work done, in seconds of a middling GPU of this cluster; what was undone is taken off."""
    lost_work_s: float = 0.0
    """Work that was undone, in the same unit."""
    stops: int = 0
    """Jobs that were told to stop and wait."""
    evictions: int = 0
    """Jobs that were thrown out because memory did not suffice."""
    unkept_window_s: float = 0.0
    unkept_planned_s: float = 0.0
    unkept_switching_s: float = 0.0
    unkept_starting_s: float = 0.0
    unkept_moving_s: float = 0.0
    unkept_slow_s: float = 0.0
    """Promised job-seconds that were not kept, by cause (see `CAUSES`)."""
