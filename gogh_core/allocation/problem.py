"""The problem that a plan answers (`gogh.problem/1`): types, reading, writing, validation.

A problem is checked once, when it is made, and every fault is listed at once. What passed is
canonical: servers and jobs by id, options in the table's order, so that nothing downstream
can depend on the order of the input.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from gogh_core.allocation.options import (
    Option,
    OptionTable,
    options_from_parquet,
    options_from_rows,
)
from gogh_core.domain import Slot
from gogh_core.errors import InvalidInput, InvalidProblem

__all__ = [
    "Limits",
    "Problem",
    "ProblemJob",
    "ProblemServer",
    "load_problem",
    "problem_from_dict",
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


def load_problem(path: str | Path) -> Problem:
    """A problem from a JSON file; its options may lie beside it as Parquet."""
    path = Path(path)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInput(f"cannot be read: {reason}", where=str(path)) from error
    except ValueError as error:
        raise InvalidProblem([f"it is no JSON: {error}"], where=str(path)) from error
    return problem_from_dict(raw, where=str(path), folder=path.parent)


def problem_from_dict(
    raw: Mapping[str, Any], *, where: str = "problem", folder: Path | None = None
) -> Problem:
    """A problem from its JSON object; every fault of its shape is listed at once."""
    if not isinstance(raw, Mapping):
        raise InvalidProblem(["it is no JSON object"], where=where)
    faults: list[str] = []
    if raw.get("schema") != SCHEMA:
        faults.append(f"schema is {raw.get('schema')!r}, not {SCHEMA!r}")
    read = _Reader(faults)
    gpu_types = {
        str(name): read.number(entry, "idle_w", f"gpu_types[{name!r}]")
        for name, entry in read.mapping(raw, "gpu_types").items()
    }
    servers = [_server(read, entry, i) for i, entry in enumerate(read.items(raw, "servers"))]
    jobs = [_job(read, entry, i) for i, entry in enumerate(read.items(raw, "jobs"))]
    quotas = {
        str(owner): read.whole({"quota": value}, "quota", f"quotas[{owner!r}]")
        for owner, value in read.mapping(raw, "quotas", optional=True).items()
    }
    limits = read.mapping(raw, "limits", optional=True)
    cap = None
    if raw.get("power_cap_w") is not None:
        cap = read.number(raw, "power_cap_w", "problem")
    moves = None
    if raw.get("max_moves") is not None:
        moves = read.whole(raw, "max_moves", "problem")
    window_s = read.number(raw, "window_s", "problem")
    penalty = read.number(raw, "waiting_penalty_w", "problem")
    pause = Limits(
        read.number(limits, "min_runtime_s", "limits", 0.0),
        read.number(limits, "cooldown_s", "limits", 0.0),
    )
    try:
        table = _options(raw.get("options"), folder)
    except InvalidProblem as error:
        faults.extend(error.faults)
    if faults:
        raise InvalidProblem(faults, where=where)
    return Problem(
        window_s, penalty, gpu_types, servers, jobs, table, cap, moves, quotas, pause, where
    )


def _options(raw: Any, folder: Path | None) -> OptionTable:
    if not isinstance(raw, Mapping):
        return options_from_rows(raw)
    name = raw.get("file")
    if not isinstance(name, str) or not name:
        raise InvalidProblem(["options is an object without 'file'"])
    if folder is None:
        raise InvalidProblem([f"options file {name!r}: a problem without a file has no folder"])
    target = (folder / name).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise InvalidProblem([f"options file {name!r} lies outside the problem's folder"])
    return options_from_parquet(str(target))


class _Reader:
    """Reads fields of raw JSON; what is wrong goes to one list, a harmless value goes on."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults

    def items(self, raw: Mapping[str, Any], name: str) -> list[Any]:
        value = raw.get(name)
        if not isinstance(value, list):
            self.faults.append(f"{name} is {'missing' if value is None else 'no list'}")
            return []
        return value

    def mapping(
        self, raw: Mapping[str, Any], name: str, *, optional: bool = False
    ) -> Mapping[str, Any]:
        value = raw.get(name)
        if value is None and optional:
            return {}
        if not isinstance(value, Mapping):
            self.faults.append(f"{name} is {'missing' if value is None else 'no object'}")
            return {}
        return value

    def number(self, raw: Any, name: str, where: str, default: float | None = None) -> float:
        value = raw.get(name, default) if isinstance(raw, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.faults.append(f"{where}: {name} is {value!r}, not a number")
            return 0.0
        if not math.isfinite(value) or value < 0:
            self.faults.append(f"{where}: {name} is {value!r}, not a number >= 0")
            return 0.0
        return float(value)

    def whole(self, raw: Any, name: str, where: str, default: int | None = None) -> int:
        value = raw.get(name, default) if isinstance(raw, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.faults.append(f"{where}: {name} is {value!r}, not a whole number >= 0")
            return 1
        if not math.isfinite(value) or value != int(value) or value < 0:
            self.faults.append(f"{where}: {name} is {value!r}, not a whole number >= 0")
            return 1
        return int(value)

    def text(self, raw: Any, name: str, where: str, default: str | None = None) -> str:
        value = raw.get(name, default) if isinstance(raw, Mapping) else None
        if not isinstance(value, str):
            self.faults.append(f"{where}: {name} is {value!r}, not a text")
            return ""
        return value

    def flag(self, raw: Any, name: str, where: str, default: bool) -> bool:
        value = raw.get(name, default) if isinstance(raw, Mapping) else default
        if not isinstance(value, bool):
            self.faults.append(f"{where}: {name} is {value!r}, not true or false")
            return default
        return value


def _server(read: _Reader, raw: Any, index: int) -> ProblemServer:
    where = f"servers[{index}]"
    name = read.text(raw, "id", where)
    where = f"server {name}" if name else where
    return ProblemServer(
        name,
        read.text(raw, "gpu_type", where),
        read.whole(raw, "gpus", where),
        read.number(raw, "base_w", where),
        read.flag(raw, "on", where, True),
        read.flag(raw, "drain", where, False),
        read.flag(raw, "keep_on", where, False),
        read.number(raw, "off_w", where, 0.0),
        read.number(raw, "switch_cost_j", where, 0.0),
    )


def _job(read: _Reader, raw: Any, index: int) -> ProblemJob:
    where = f"jobs[{index}]"
    name = read.text(raw, "id", where)
    where = f"job {name}" if name else where
    raw = raw if isinstance(raw, Mapping) else {}
    mode = raw.get("mode", "gang")
    if mode not in ("gang", "spread"):
        read.faults.append(f"{where}: mode is {mode!r}, not 'gang' or 'spread'")
    counts: tuple[int, ...] = (1,)
    largest = 1
    if mode == "spread":
        largest = read.whole(raw, "max_gpus", where)
    else:
        listed = raw.get("gpu_counts", [1])
        if not isinstance(listed, list) or not listed:
            read.faults.append(f"{where}: gpu_counts is {listed!r}, not a list of numbers")
        else:
            counts = tuple(
                sorted({read.whole({"gpu_counts": m}, "gpu_counts", where) for m in listed})
            )
    share = raw.get("shareable", True)
    if share != "owner" and not isinstance(share, bool):
        read.faults.append(f"{where}: shareable is {share!r}, not true, false or 'owner'")
        share = False
    ages = {
        field_name: read.number(raw, field_name, where)
        for field_name in ("since_s", "moved_ago_s")
        if raw.get(field_name) is not None
    }
    return ProblemJob(
        id=name,
        job_class=read.text(raw, "class", where),
        mode="spread" if mode == "spread" else "gang",
        gpu_counts=counts,
        max_gpus=largest,
        required_throughput=read.number(raw, "required_throughput", where, 0.0),
        priority=read.number(raw, "priority", where, 1.0),
        shareable=share,
        at=_slots(read, raw.get("at") or [], where),
        move_cost_j=read.number(raw, "move_cost_j", where, 0.0),
        owner=read.text(raw, "owner", where, ""),
        pinned=read.flag(raw, "pinned", where, False),
        movable=read.flag(raw, "movable", where, True),
        since_s=ages.get("since_s"),
        moved_ago_s=ages.get("moved_ago_s"),
        moves=read.whole(raw, "moves", where, 0),
        surplus_j_per_step=read.number(raw, "surplus_j_per_step", where, 0.0),
    )


def _slots(read: _Reader, raw: Any, where: str) -> tuple[Slot, ...]:
    slots = []
    entries: list[Any] = raw if isinstance(raw, list) else [raw]
    for entry in entries:
        try:
            slots.append(Slot.from_dict(entry))
        except (KeyError, TypeError, ValueError, InvalidInput) as error:
            kind = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            read.faults.append(f"{where}: at {entry!r} {kind}")
    return tuple(sorted(slots, key=lambda slot: (slot.server, slot.gpus)))
