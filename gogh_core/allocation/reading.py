"""Reading a problem (`gogh.problem/1`): every fault of its shape is listed at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gogh_core.allocation.options import (
    MOST,
    OptionTable,
    options_from_parquet,
    options_from_rows,
    short,
)
from gogh_core.allocation.problem import SCHEMA, Limits, Problem, ProblemJob, ProblemServer
from gogh_core.domain import Slot
from gogh_core.errors import InvalidInput, InvalidProblem

__all__ = ["load_problem", "problem_from_dict"]


def load_problem(path: str | Path) -> Problem:
    """A problem from a JSON file; its options may lie beside it as Parquet."""
    path = Path(path)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInput(f"cannot be read: {reason}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
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
    else:
        if not faults:
            return Problem(
                window_s, penalty, gpu_types, servers, jobs, table, cap, moves, quotas, pause, where
            )
        if not any(subject in ("gpu_types", "servers", "jobs") for subject in read.broken):
            # What does not fit together is told at once with what is wrong by itself.
            try:
                Problem(window_s or 1.0, penalty, gpu_types, servers, jobs, table, quotas=quotas)
            except InvalidProblem as error:
                faults.extend(f for f in error.faults if f.split(":")[0] not in read.broken)
    raise InvalidProblem(faults, where=where)


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
        self.broken: set[str] = set()
        """What is read so wrongly that more said of it would follow from that."""

    def items(self, raw: Mapping[str, Any], name: str) -> list[Any]:
        value = raw.get(name)
        if not isinstance(value, list):
            self.faults.append(f"{name} is {'missing' if value is None else 'no list'}")
            self.broken.add(name)
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
            self.broken.add(name)
            return {}
        return value

    def number(self, raw: Any, name: str, where: str, default: float | None = None) -> float:
        value = raw.get(name, default) if isinstance(raw, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.faults.append(f"{where}: {name} is {short(value)}, not a number")
        elif not 0 <= value < float("inf"):
            self.faults.append(f"{where}: {name} is {short(value)}, not a number >= 0")
        elif value > MOST:
            self.faults.append(f"{where}: {name} is {short(value)}, more than {MOST:g}")
        else:
            return float(value)
        return 0.0

    def whole(self, raw: Any, name: str, where: str, default: int | None = None) -> int:
        value: Any = raw.get(name, default) if isinstance(raw, Mapping) else None
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < float("inf") or value % 1 != 0:
            self.faults.append(f"{where}: {name} is {short(value)}, not a whole number >= 0")
        elif value > MOST:
            self.faults.append(f"{where}: {name} is {short(value)}, more than {MOST:g}")
        else:
            return int(value)
        return 1

    def text(self, raw: Any, name: str, where: str, default: str | None = None) -> str:
        value = raw.get(name, default) if isinstance(raw, Mapping) else None
        if not isinstance(value, str):
            self.faults.append(f"{where}: {name} is {short(value)}, not a text")
            self.broken.add(where)
            return ""
        return value

    def flag(self, raw: Any, name: str, where: str, default: bool) -> bool:
        value = raw.get(name, default) if isinstance(raw, Mapping) else default
        if not isinstance(value, bool):
            self.faults.append(f"{where}: {name} is {short(value)}, not true or false")
            return default
        return value


def _server(read: _Reader, raw: Any, index: int) -> ProblemServer:
    where = f"servers[{index}]"
    name = read.text(raw, "id", where)
    where = f"server {name}" if name else where
    before = len(read.faults)
    gpu_type, gpus = read.text(raw, "gpu_type", where), read.whole(raw, "gpus", where)
    if not name or len(read.faults) > before:
        read.broken.add("servers")
    return ProblemServer(
        name,
        gpu_type,
        gpus,
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
        read.faults.append(f"{where}: mode is {short(mode)}, not 'gang' or 'spread'")
        read.broken.add(where)
    counts: tuple[int, ...] = (1,)
    largest = 1
    if mode == "spread":
        largest = read.whole(raw, "max_gpus", where)
    else:
        listed = raw.get("gpu_counts", [1])
        if not isinstance(listed, list) or not listed:
            read.faults.append(f"{where}: gpu_counts is {short(listed)}, not a list of numbers")
        else:
            counts = tuple(
                sorted({read.whole({"gpu_counts": m}, "gpu_counts", where) for m in listed})
            )
    share = raw.get("shareable", True)
    if share != "owner" and not isinstance(share, bool):
        read.faults.append(f"{where}: shareable is {short(share)}, not true, false or 'owner'")
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
            read.faults.append(f"{where}: at {short(entry)} {kind}")
            read.broken.add(where)
    return tuple(sorted(slots, key=lambda slot: (slot.server, slot.gpus)))
