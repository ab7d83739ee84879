"""A cluster's state as JSON (`gogh.state/1`), for the store and for sites that write their own.

`state_to_dict` and `state_from_dict` are inverses. What is missing in a file a site wrote takes
the default of its type; what is wrong is refused with where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

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

__all__ = ["state_from_dict", "state_to_dict"]


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
    """The state that was kept, or that a site wrote."""
    if not isinstance(raw, Mapping) or raw.get("schema") != "gogh.state/1":
        raise InvalidInput("is no state of a cluster (schema gogh.state/1)", where=where)
    at = _each(lambda entry: utc(datetime.fromisoformat(entry)), [raw.get("at")], f"{where}: at")
    return ClusterState(
        at[0],
        tuple(_each(_server, raw.get("servers", []), f"{where}: servers")),
        tuple(_each(_job, raw.get("jobs", []), f"{where}: jobs")),
    )


def _each(parse: Callable[[Any], Any], entries: Any, where: str) -> list[Any]:
    if not isinstance(entries, list):
        raise InvalidInput("is no list", where=where)
    parsed = []
    for index, entry in enumerate(entries):
        try:
            parsed.append(parse(entry))
        except KeyError as error:
            raise InvalidInput(f"lacks {error}", where=f"{where}[{index}]") from error
        except (TypeError, ValueError, AttributeError, InvalidInput) as error:
            raise InvalidInput(f"cannot be read: {error}", where=f"{where}[{index}]") from error
    return parsed


def _known(type_: type[Any], raw: Mapping[str, Any], /, **converted: Any) -> Any:
    """An object of that type; names that it does not have are refused by their name."""
    names = {field.name for field in fields(type_)}
    unknown = sorted(set(raw) - names)
    if unknown:
        raise ValueError(f"{unknown[0]} is not known")
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
    return status
