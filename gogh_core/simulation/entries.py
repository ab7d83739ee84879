"""What a scheduler sees of one server and of one job, and the words it gives orders in.

`Machine` and `Entry` are rows of the board; `Order` is what a policy tells the board to do;
`Policy`, `Resumable` and `Rates` are what a policy brings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from gogh_core.domain import Job, JobState, PowerState, Server, Slot

if TYPE_CHECKING:
    from gogh_core.simulation.board import Board

__all__ = [
    "USABLE",
    "Entry",
    "Guess",
    "Machine",
    "Order",
    "Policy",
    "Rates",
    "Resumable",
    "Why",
]

USABLE = (PowerState.ON, PowerState.SWITCHING_ON)
Why = Literal["window", "event", "check"]
"""A window begins, something changed, or the moment came that the policy asked to be woken at."""


@dataclass(frozen=True, slots=True)
class Guess:
    """What one or two classes reach together; `throughput[i]` belongs to class i."""

    throughput: tuple[float, ...]
    power_w: float
    """Of each GPU, idle draw included."""


class Rates(Protocol):
    """What a policy believes of speeds and watts: the true means, or what was learned."""

    def run(self, gpu_type: str, gpus: int, classes: tuple[str, ...]) -> Guess | None:
        """One or two classes on `gpus` GPUs of a type; None: they do not run there."""
        ...


@dataclass(slots=True)
class Machine:
    """A server as a scheduler sees it."""

    server: Server
    power: PowerState = PowerState.ON
    ready_s: float = 0.0
    """When the switch that is under way ends."""
    since_s: float = 0.0
    drain: bool = False
    dead: frozenset[int] = frozenset()
    users: list[list[str]] = field(default_factory=list)
    """By GPU, the jobs on it, in order of arrival."""
    number: int = 0
    """Its place in the order of the servers."""
    idle: int = 0
    """How many GPUs nobody uses, dead ones not counted; the board keeps it."""
    taken: int = 0
    """How many seats are taken: two on a GPU that two jobs share; the board keeps it."""

    @property
    def usable(self) -> bool:
        """Whether jobs can be placed there without switching it on."""
        return self.power in USABLE and not self.drain

    def free(self) -> list[int]:
        """GPUs that nobody uses."""
        return [g for g, users in enumerate(self.users) if not users and g not in self.dead]

    def busy(self) -> bool:
        """Whether any job sits there."""
        return self.taken > 0


@dataclass(slots=True)
class Entry:
    """A job as a scheduler sees it; progress is what its reports say.

    `steps`, `waited_s` and `gpu_s` were counted at `at_s`, which may be a while ago: the methods
    `steps_at`, `waited_at` and `attained_at` give them for now.
    """

    job: Job
    arrived_s: float
    required: float
    """What is promised at this moment; the job's own figure but for services."""
    state: JobState = JobState.WAITING
    slots: tuple[Slot, ...] = ()
    since_s: float = 0.0
    """Waiting, or running where it is, since then."""
    started_s: float | None = None
    moved_s: float | None = None
    moves: int = 0
    stops: int = 0
    limit_w: float | None = None
    rate: float = 0.0
    """Steps per second, as reported since `at_s`."""
    steps: float = 0.0
    waited_s: float = 0.0
    gpu_s: float = 0.0
    """GPU-seconds it has had."""
    at_s: float = 0.0
    """When `steps`, `waited_s` and `gpu_s` were last counted."""
    number: int = 0
    """Its place in the order of arrival."""

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def gpus(self) -> int:
        """GPUs it has now."""
        return sum(len(slot.gpus) for slot in self.slots)

    def steps_at(self, now_s: float) -> float:
        """Steps done by now."""
        done = self.steps + self.rate * (now_s - self.at_s)
        total = self.job.total_steps
        return done if total is None else min(done, total)

    def waited_at(self, now_s: float) -> float:
        """Seconds without a place by now."""
        return self.waited_s if self.slots else self.waited_s + now_s - self.at_s

    def attained_at(self, now_s: float) -> float:
        """GPU-seconds it has had by now."""
        return self.gpu_s + self.gpus * (now_s - self.at_s)

    def count(self, now_s: float) -> None:
        """Count steps, waiting and GPU-seconds up to now."""
        self.steps, self.waited_s, self.gpu_s, self.at_s = (
            self.steps_at(now_s),
            self.waited_at(now_s),
            self.attained_at(now_s),
            now_s,
        )


@dataclass(frozen=True, slots=True)
class Order:
    """One thing to do; `slots` for `place` and `move`."""

    do: Literal["place", "move", "stop", "on", "off"]
    target: str
    """A job, or a server for `on` and `off`."""
    slots: tuple[Slot, ...] = ()
    limit_w: float | None = None


class Policy(Protocol):
    """Who decides. `every_s` None: on events only; `on_events` False: at windows only.

    A policy with an attribute `only_if_changed` that is true is not asked at a window when nothing
    changed since it last acted. One with a method `wake_s(board)` is asked at that moment, too.
    """

    name: str
    every_s: float | None
    on_events: bool

    def act(self, board: Board, why: Why) -> None:
        """Look at the board and give orders."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """A policy with a state of its own, which a saved run keeps; the others have none."""

    def to_dict(self) -> dict[str, Any]:
        """Its state, in words that JSON knows."""
        ...

    def restore(self, raw: dict[str, Any]) -> None:
        """Go on where `to_dict` was called."""
        ...
