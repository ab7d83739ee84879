"""A cluster's state as JSON (`gogh.state/1`), for the store and for sites that write their own.

`state_to_dict` and `state_from_dict` are inverses. What is missing in a file a site wrote takes
the default of its type. A record that is wrong is refused alone, with the reason: `read_state`
gives both, `state_from_dict` takes a state only whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from datetime import datetime
from typing import Any

from gogh_core.cluster.boundary import (
    MOST_GPUS,
    check_job,
    check_server,
    each,
    label,
    leave_alone,
)
from gogh_core.domain import (
    ClusterState,
    Descriptors,
    Job,
    JobKind,
    JobState,
    JobStatus,
    Mode,
    PowerState,
    Server,
    ServerStatus,
    Slot,
    utc,
)
from gogh_core.errors import InvalidInput

__all__ = ["read_state", "state_from_dict", "state_to_dict"]


def state_to_dict(state: ClusterState) -> dict[str, Any]:
    """As it is kept."""
    return {
        "schema": "gogh.state/1",
        "at": state.at.isoformat(),
        "servers": [_plain(asdict(status)) for status in state.servers],
        "jobs": [_plain(asdict(status)) for status in state.jobs],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value


def state_from_dict(raw: Any, *, where: str = "state") -> ClusterState:
    """The state that was kept; one bad record refuses the whole."""
    state, refused = read_state(raw, where=where)
    for name, why in refused.items():
        raise InvalidInput(why, where=f"{where}: {name}")
    return state


def read_state(raw: Any, *, where: str = "state") -> tuple[ClusterState, dict[str, str]]:
    """The state that a site wrote, and which of its jobs and servers are refused, with the reason.

    GPUs of a refused job that runs count as not ours.
    """
    if not isinstance(raw, Mapping) or raw.get("schema") != "gogh.state/1":
        raise InvalidInput("is no state of a cluster (schema gogh.state/1)", where=where)
    try:
        at = utc(datetime.fromisoformat(raw["at"]))
    except (KeyError, TypeError, ValueError, OverflowError, InvalidInput) as error:
        raise InvalidInput(f"is no time: {error}", where=f"{where}: at") from error
    entries = {name: raw.get(name, []) for name in ("servers", "jobs")}
    for name, listed in entries.items():
        if not isinstance(listed, list):
            raise InvalidInput("is no list", where=f"{where}: {name}")
    servers, left_out = each(entries["servers"], _server, _named("server", "servers"))
    jobs, refused = each(entries["jobs"], _job, _named("job", "jobs"))
    taken: dict[str, set[int]] = defaultdict(set)
    lost = False
    for index, entry in enumerate(entries["jobs"]):
        if _named("job", "jobs")(entry, index) in refused:
            slots = _salvaged(entry)
            lost = lost or slots is None
            for slot in slots or ():
                taken[slot.server].update(slot.gpus)
    known = leave_alone([status for _, status in servers], taken, busy=taken, lost=lost)
    refused |= {f"server {name}": why for name, why in left_out.items()}
    return ClusterState(at, known, tuple(status for _, status in jobs)), refused


def _named(kind: str, place: str) -> Callable[[Any, int], str]:
    """The id in a record, or where the record stands."""

    def name(raw: Any, index: int) -> str:
        inner = raw.get(kind) if isinstance(raw, Mapping) else None
        own = inner.get("id") if isinstance(inner, Mapping) else None
        return label(own, f"{place}[{index}]")

    return name


def _salvaged(raw: Any) -> tuple[Slot, ...] | None:
    """What a refused job holds; None when its record does not say."""
    try:
        slots = (*_slots(raw.get("slots", ())), *_slots(raw.get("starting", ())))
    except Exception:  # noqa: BLE001 - the job is refused with the reason
        return None
    return slots if all(max(slot.gpus) < MOST_GPUS for slot in slots) else None


def _known(type_: type[Any], raw: Mapping[str, Any], /, **converted: Any) -> Any:
    """An object of that type; names that it does not have or lacks are refused by their name."""
    if not isinstance(raw, Mapping):
        raise InvalidInput("is no object")
    names = {field.name for field in fields(type_)}
    lacks = [
        field.name
        for field in fields(type_)
        if field.default is MISSING and field.default_factory is MISSING
        if field.name not in raw and field.name not in converted
    ]
    if lacks:
        raise InvalidInput(f"lacks {lacks[0]!r}")
    unknown = sorted(set(raw) - names)
    if unknown:
        raise InvalidInput(f"{unknown[0]} is not known")
    return type_(**{**raw, **converted})


def _time(raw: Any) -> datetime | None:
    return None if raw is None else utc(datetime.fromisoformat(raw))


def _slots(raw: Iterable[Mapping[str, Any]]) -> tuple[Slot, ...]:
    return tuple(Slot.from_dict(slot) for slot in raw)


def _server(raw: Mapping[str, Any]) -> ServerStatus:
    status: ServerStatus = _known(
        ServerStatus,
        raw,
        server=_known(Server, raw["server"]),
        power=PowerState(raw.get("power", "on")),
        foreign_gpus=tuple(int(gpu) for gpu in raw.get("foreign_gpus", ())),
        since=_time(raw.get("since")),
    )
    check_server(status)
    return status


def _job(raw: Mapping[str, Any]) -> JobStatus:
    inner = raw["job"]
    described = inner["descriptors"]
    descriptors = _known(
        Descriptors, described, kind=JobKind(described.get("kind", JobKind.TRAINING))
    )
    job = _known(
        Job,
        inner,
        descriptors=descriptors,
        submitted_at=utc(datetime.fromisoformat(inner["submitted_at"])),
        mode=Mode(inner.get("mode", Mode.GANG)),
        gpu_counts=tuple(int(count) for count in inner.get("gpu_counts", (1,))),
        deadline_at=_time(inner.get("deadline_at")),
    )
    status: JobStatus = _known(
        JobStatus,
        raw,
        job=job,
        state=JobState(raw["state"]),
        slots=_slots(raw.get("slots", ())),
        starting=_slots(raw.get("starting", ())),
        since=_time(raw.get("since")),
        partners=tuple(str(name) for name in raw.get("partners", ())),
        moved_at=_time(raw.get("moved_at")),
    )
    check_job(status)
    return status
