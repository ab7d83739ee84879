"""What the embedded cluster remembers of each job and server, and how it is written down.

Times are seconds after the clock began. `to_dict` and `from_dict` keep every bit: a world that was
written and read again goes on exactly as the one that was not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from gogh_core.domain import JobState, PowerState, Server, Slot
from gogh_core.simulation.arrivals import Demand, demand_from, demand_to

__all__ = ["JobRecord", "Place", "ServerRecord", "Totals"]


def _plain(record: Any) -> dict[str, Any]:
    """The fields of a flat record; `asdict` would copy each of them, which takes most of a save."""
    return {name: getattr(record, name) for name in record.__slots__}


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
        raw = {name: getattr(self, name) for name in self.__slots__}
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
        return cls(**own)


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

    def __post_init__(self) -> None:
        if not self.energy_j:
            self.energy_j = [0.0] * self.server.gpus

    def to_dict(self) -> dict[str, Any]:
        """As it stands on disk."""
        raw = {name: getattr(self, name) for name in self.__slots__}
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
        return cls(**own)


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
