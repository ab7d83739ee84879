"""What every cluster manager can be asked, and which one the settings name.

`ClusterManager` is the protocol: `state` and `refused` read, `clock` and `advance` are time, six
verbs do. `Capabilities` says what a manager can do beyond placing jobs on servers; a plan asks only
for that. Nothing else in the project knows which manager it talks to: `open_manager` opens the
configured one.

Promises of every manager (`tests/cluster/contract.py` holds each of them to these):
- `state` lists every job of ours that still runs or waits, and every server; a job that is being
  started or carried over is MOVING on the slots it goes to.
- an action returns when the manager has accepted it; `state` then shows it within
  `capabilities.action_timeout_s` (0: at once). A placed or moved job shows as RUNNING or MOVING on
  its slots, a held one as WAITING without slots, a switched server as on or switching on (off or
  switching off).
- sending an action again with the same key changes nothing.
- ClusterUnavailable means try again; ActionFailed and NotCapable mean it will not help.
- whatever one record of a job or server holds, that record is refused, with the reason in
  `refused`, and the others are read (`boundary`).
- an action on a job or server that is not ours, or not there, raises ActionFailed.
- `clock` never goes back. It is the only clock of the store: whatever is written there or compared
  with what is there has its time from it. Only processes and files live by the wall's clock.
- `advance` lets a virtual clock go on; a real cluster's time passes by itself, so there it does
  nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from gogh_core.domain import ClusterState, Plan, Slot
from gogh_core.settings import Settings

if TYPE_CHECKING:
    from gogh_core.store import Store

__all__ = ["Capabilities", "ClusterManager", "PlanTaker", "open_manager"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a manager can do beyond placing a job on a server."""

    chooses_gpu_index: bool
    """A job gets exactly the planned GPUs, not only their number."""
    pairs_named_jobs: bool
    """Two named jobs share a GPU when the plan says so; otherwise sharing is by chance."""
    sets_power_limits: bool
    switches_servers: bool
    action_timeout_s: float = 120.0
    """How long an accepted action may take to come true; 0: it is true at once."""
    parallel_actions: int = 1
    """How many actions may be sent at the same time."""


@runtime_checkable
class ClusterManager(Protocol):
    """A cluster that can be read and driven; `key` identifies (plan, action)."""

    name: str
    """`simulated`, `slurm`, `files`."""
    real: bool
    """A real cluster is only advised unless the mode is `act`."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    def state(self) -> ClusterState:
        """Everything the manager knows now; raises ClusterUnavailable."""
        ...

    def refused(self) -> Mapping[str, str]:
        """Jobs that meant to opt in and cannot be planned, with the reason.

        Servers whose record cannot be read are listed as `server NAME` (Slurm: `node NAME`).
        """
        ...

    def clock(self) -> datetime:
        """The cluster's time now."""
        ...

    def advance(self, seconds: float) -> None:
        """Let a virtual cluster run for so long; a real one runs by itself."""
        ...

    def place(
        self,
        job: str,
        slots: tuple[Slot, ...],
        *,
        partner: str | None,
        power_limit_w: float | None,
        key: str,
    ) -> None:
        """Start a waiting job there."""
        ...

    def move(
        self,
        job: str,
        slots: tuple[Slot, ...],
        *,
        partner: str | None,
        power_limit_w: float | None,
        key: str,
    ) -> None:
        """Checkpoint a running job and start it again there."""
        ...

    def hold(self, job: str, *, key: str) -> None:
        """Checkpoint a running job and let it wait until it is placed again."""
        ...

    def release(self, job: str, *, key: str) -> None:
        """Give a job back to the manager's own scheduler."""
        ...

    def switch(self, server: str, *, on: bool, key: str) -> None:
        """Switch a server on or off."""
        ...

    def set_power_limit(self, server: str, gpu: int, watts: float, *, key: str) -> None:
        """Limit what one GPU may draw."""
        ...


@runtime_checkable
class PlanTaker(Protocol):
    """A manager that takes a plan whole, and carries it out by itself."""

    def deliver(self, plan: Plan, *, key: str) -> str:
        """Hand the plan over; returns what the site answered. Twice is harmless."""
        ...


def open_manager(settings: Settings, store: Store) -> ClusterManager:
    """The cluster manager that the settings name."""
    if settings.cluster.manager == "slurm":
        from gogh_core.cluster.slurm import SlurmManager

        return SlurmManager(settings)
    if settings.cluster.manager == "files":
        from gogh_core.cluster.files import FilesManager

        return FilesManager(settings)
    # By name, so that this room knows nothing of the simulation.
    simulation = importlib.import_module("gogh_core.simulation")
    return cast(ClusterManager, simulation.open_cluster(settings, store))
