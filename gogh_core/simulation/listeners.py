"""Who is told of what happens in the world: recorders of ticks, listeners of changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from gogh_core.simulation.floor import Spot
from gogh_core.simulation.rates import Tick
from gogh_core.simulation.records import JobRecord, ServerRecord

if TYPE_CHECKING:
    from gogh_core.simulation.world import World

__all__ = ["Listener", "Recorder"]


class Recorder(Protocol):
    """Who writes down what happens."""

    def tick(self, world: World, tick: Tick) -> None:
        """A stretch has ended at `world.now_s`."""
        ...


class Listener(Protocol):
    """Who wants to know what changed."""

    def changed(self, jobs: Iterable[JobRecord], servers: Iterable[ServerRecord]) -> None:
        """These were worked out anew at `world.now_s`; an ended job is among them once."""
        ...

    def evicted(self, record: JobRecord, spot: Spot, partner: JobRecord | None) -> None:
        """A job was thrown out of a spot because memory did not suffice."""
        ...
