"""The problem that a plan answers (`gogh.problem/1`): types, writing, validation.

A problem is checked once, when it is made, and every fault is listed at once. What passed is
canonical: servers and jobs by id, options in the table's order, so that nothing downstream
can depend on the order of the input.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from gogh_core.allocation.options import (
    Option,
    OptionTable,
)
from gogh_core.domain import Slot
from gogh_core.errors import InvalidProblem

__all__ = [
    "Limits",
    "Problem",
    "ProblemJob",
    "ProblemServer",
]

SCHEMA = "gogh.problem/1"
Gpu = tuple[str, int]
"""A GPU: its server and its index there."""


@dataclass(frozen=True, slots=True)
class ProblemServer:
    """A server as the planner sees it."""

    id: str
    gpu_type: str
    gpus: int
    base_w: float
    on: bool = True
    drain: bool = False
    keep_on: bool = False
    off_w: float = 0.0
    switch_cost_j: float = 0.0


@dataclass(frozen=True, slots=True)
class ProblemJob:
    """A job as the planner sees it; `at` is where it runs now (empty: waiting)."""

    id: str
    job_class: str
    mode: Literal["gang", "spread"] = "gang"
    gpu_counts: tuple[int, ...] = (1,)
    max_gpus: int = 1
    required_throughput: float = 0.0
    priority: float = 1.0
    shareable: bool | Literal["owner"] = True
    at: tuple[Slot, ...] = ()
    move_cost_j: float = 0.0
    owner: str = ""
    pinned: bool = False
    movable: bool = True
    since_s: float | None = None
    moved_ago_s: float | None = None
    moves: int = 0
    surplus_j_per_step: float = 0.0

    @property
    def place(self) -> frozenset[Gpu]:
        """The GPUs it runs on now."""
        return frozenset((slot.server, gpu) for slot in self.at for gpu in slot.gpus)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a job is left alone after it started (`min_runtime_s`) or moved (`cooldown_s`)."""

    min_runtime_s: float = 0.0
    cooldown_s: float = 0.0


@dataclass(frozen=True)
class Problem:
    """Everything a plan needs; `gpu_types` maps each GPU type to its idle watts."""

    window_s: float
    waiting_penalty_w: float
    gpu_types: Mapping[str, float]
    servers: Sequence[ProblemServer]
    jobs: Sequence[ProblemJob]
    options: OptionTable | Sequence[Option]
    power_cap_w: float | None = None
    max_moves: int | None = None
    quotas: Mapping[str, int] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    where: str = field(default="problem", compare=False, repr=False)

    def __post_init__(self) -> None:
        from gogh_core.allocation.validate import faults_of

        if not isinstance(self.options, OptionTable):
            object.__setattr__(self, "options", OptionTable.of(list(self.options)))
        object.__setattr__(self, "servers", tuple(sorted(self.servers, key=lambda s: s.id)))
        object.__setattr__(self, "jobs", tuple(sorted(self.jobs, key=lambda j: j.id)))
        object.__setattr__(self, "gpu_types", dict(sorted(self.gpu_types.items())))
        object.__setattr__(self, "quotas", dict(sorted(self.quotas.items())))
        faults = faults_of(self)
        if faults:
            raise InvalidProblem(faults, where=self.where)

    @property
    def table(self) -> OptionTable:
        """The options as columns."""
        assert isinstance(self.options, OptionTable)
        return self.options

    @cached_property
    def server_of(self) -> dict[str, ProblemServer]:
        """Servers by id."""
        return {server.id: server for server in self.servers}

    @cached_property
    def job_of(self) -> dict[str, ProblemJob]:
        """Jobs by id."""
        return {job.id: job for job in self.jobs}

    @cached_property
    def largest(self) -> dict[str, int]:
        """GPUs of the largest server of each type: a gang up to that size sits on one server."""
        sizes: dict[str, int] = {}
        for server in self.servers:
            sizes[server.gpu_type] = max(sizes.get(server.gpu_type, 0), server.gpus)
        return sizes

    @cached_property
    def sha256(self) -> str:
        """A hash that does not depend on the order of the input."""
        raw = self.to_dict(options=False)
        digest = hashlib.sha256(json.dumps(raw, sort_keys=True).encode())
        digest.update("\0".join((*self.table.types, "|", *self.table.classes)).encode())
        for column in self.table.columns():
            digest.update(column.tobytes())
        return digest.hexdigest()

    def to_dict(self, *, options: bool = True) -> dict[str, Any]:
        """As it stands in a problem file."""
        raw: dict[str, Any] = {
            "schema": SCHEMA,
            "window_s": self.window_s,
            "waiting_penalty_w": self.waiting_penalty_w,
            "gpu_types": {name: {"idle_w": idle} for name, idle in self.gpu_types.items()},
            "servers": [_plain(server, _SERVER_DEFAULTS) for server in self.servers],
            "jobs": [_job_dict(job) for job in self.jobs],
        }
        if self.power_cap_w is not None:
            raw["power_cap_w"] = self.power_cap_w
        if self.max_moves is not None:
            raw["max_moves"] = self.max_moves
        if self.quotas:
            raw["quotas"] = dict(self.quotas)
        if self.limits != Limits():
            raw["limits"] = _plain(self.limits, {})
        if options:
            raw["options"] = [option.to_dict() for option in self.table]
        return raw


_SERVER_DEFAULTS = {"drain": False, "keep_on": False, "off_w": 0.0, "switch_cost_j": 0.0}
_JOB_DEFAULTS = {
    "owner": "",
    "pinned": False,
    "movable": True,
    "since_s": None,
    "moved_ago_s": None,
    "moves": 0,
    "surplus_j_per_step": 0.0,
}


def _plain(thing: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a flat dataclass, optional ones only where they say something."""
    raw = {name: getattr(thing, name) for name in thing.__dataclass_fields__}
    return {k: v for k, v in raw.items() if k not in defaults or v != defaults[k]}


def _job_dict(job: ProblemJob) -> dict[str, Any]:
    raw = _plain(job, _JOB_DEFAULTS)
    raw["class"] = raw.pop("job_class")
    raw["at"] = [slot.to_dict() for slot in job.at]
    raw["gpu_counts"] = list(job.gpu_counts)
    del raw["gpu_counts" if job.mode == "spread" else "max_gpus"]
    return raw
