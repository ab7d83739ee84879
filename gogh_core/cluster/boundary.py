"""One boundary per record: whatever one job's or server's record does, the others go on.

A manager reads each record through `each` (or its own `try` with `reason`): any exception refuses
that record, with one printable line that says why. `check_job` and `check_server` hold what was
read to the types and sizes that the store and the planner take, so that nothing odd gets past the
manager. GPUs of a job that is refused while it runs are not ours (`leave_alone`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from numbers import Integral, Real
from typing import Any, TypeVar

from gogh_core.domain import (
    JobKind,
    JobState,
    JobStatus,
    Mode,
    PowerState,
    ServerStatus,
    Slot,
)
from gogh_core.errors import InvalidInput

__all__ = ["MOST_GPUS", "check_job", "check_server", "each", "label", "leave_alone", "reason"]

T = TypeVar("T")

MOST_GPUS = 1024
"""GPUs of one server, at most; a record with more is a mistake or an attack."""
_LONGEST_ID = 200
_LONGEST_TEXT = 1024
_LONGEST_REASON = 300
_LARGEST_WHOLE = 2**31 - 1
_LARGEST_NUMBER = 1e30
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)
_JOB_NUMBERS = ("required_throughput", "priority", "move_cost_j", "surplus_j_per_step")
# As data_contracts/jobs.json has them, so that no record gets past its manager to break that.
_LARGEST = {"required_throughput": 1e9, "priority": 1e6}
_MOST_SPREAD = 100_000
_DESCRIBED = ("parameters", "flops_per_step", "bytes_per_step", "memory_bytes")


def reason(error: Exception) -> str:
    """Why a record is refused: one short line without marks that a terminal obeys."""
    text = str(error) if isinstance(error, InvalidInput) else f"cannot be read: {error!r}"
    if len(text) > _LONGEST_REASON:
        text = text[: _LONGEST_REASON - 3] + "..."
    return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in text)


def label(name: Any, otherwise: str) -> str:
    """What a record is called: its own name where that can be used."""
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name <= _LARGEST_WHOLE:
        return str(name)
    good = isinstance(name, str) and 0 < len(name) <= _LONGEST_ID and name.isprintable()
    return str(name) if good else otherwise


def each(
    entries: Iterable[Any], read: Callable[[Any], T], name: Callable[[Any, int], str]
) -> tuple[list[tuple[str, T]], dict[str, str]]:
    """What could be read, by name, and why the others could not; a name given twice is refused."""
    found: list[tuple[str, T]] = []
    refused: dict[str, str] = {}
    for index, entry in enumerate(entries):
        called = name(entry, index)
        try:
            found.append((called, read(entry)))
        except Exception as error:  # noqa: BLE001 - whatever one record does, the others go on
            refused[called] = reason(error)
    twice = {
        called for called, count in Counter(called for called, _ in found).items() if count > 1
    }
    refused |= dict.fromkeys(twice, "is reported more than once")
    return [(called, value) for called, value in found if called not in refused], refused


def leave_alone(
    servers: Iterable[ServerStatus],
    taken: Mapping[str, Collection[int]],
    *,
    busy: Collection[str] = (),
    lost: bool = False,
) -> tuple[ServerStatus, ...]:
    """Servers with the GPUs of jobs that are not ours; `busy` ones stay on.

    `lost`: some job runs whose record does not say where, so every server stays on.
    """
    kept = []
    for status in servers:
        name, gpus = status.server.id, range(status.server.gpus)
        foreign = {*status.foreign_gpus, *(gpu for gpu in taken.get(name, ()) if gpu in gpus)}
        keep_on = status.keep_on or lost or name in busy
        kept.append(replace(status, foreign_gpus=tuple(sorted(foreign)), keep_on=keep_on))
    return tuple(kept)


def check_job(status: JobStatus) -> None:
    """Refuse a job with a field that the store or the planner could not take."""
    job, what = status.job, status.job.descriptors
    _text("id", job.id, _LONGEST_ID, printable=True)
    _text("owner", job.owner, _LONGEST_ID)
    _text("unit", job.unit, _LONGEST_ID)
    _text("name", job.name, _LONGEST_TEXT)
    _text("model", what.model, _LONGEST_ID)
    for name in ("family", "precision"):
        if getattr(what, name) is not None:
            _text(name, getattr(what, name), _LONGEST_ID)
    if what.batch_size is not None:
        _whole("batch_size", what.batch_size)
    for name in _DESCRIBED:
        _number(name, getattr(what, name), missing=True)
    for name in _JOB_NUMBERS:
        _number(name, getattr(job, name), most=_LARGEST.get(name, _LARGEST_NUMBER))
    _number("total_steps", job.total_steps, missing=True)
    for count in job.gpu_counts:
        _whole("gpu_counts", count)
    _whole("max_gpus", job.max_gpus, _MOST_SPREAD)
    _need(isinstance(job.movable, bool), "movable", job.movable)
    _need(isinstance(job.shareable, bool) or job.shareable == "owner", "shareable", job.shareable)
    _need(isinstance(job.mode, Mode), "mode", job.mode)
    _need(isinstance(what.kind, JobKind), "kind", what.kind)
    _moment("submitted_at", job.submitted_at)
    _moment("deadline_at", job.deadline_at, missing=True)
    _check_status(status)


def _check_status(status: JobStatus) -> None:
    _need(isinstance(status.state, JobState), "state", status.state)
    for slot in (*status.slots, *status.starting):
        _check_slot(slot)
    for partner in status.partners:
        _text("partners", partner, _LONGEST_ID)
    _moment("since", status.since, missing=True)
    _moment("moved_at", status.moved_at, missing=True)
    _whole("moves", status.moves)
    _number("steps_done", status.steps_done)
    _number("power_limit_w", status.power_limit_w, missing=True)


def _check_slot(slot: Slot) -> None:
    _text("server of a slot", slot.server, _LONGEST_ID)
    for gpu in slot.gpus:
        _whole("GPU index", gpu, MOST_GPUS - 1)


def check_server(status: ServerStatus) -> None:
    """Refuse a server with a field that the store or the planner could not take."""
    server = status.server
    _text("id", server.id, _LONGEST_ID, printable=True)
    _text("gpu_type", server.gpu_type, _LONGEST_ID, printable=True)
    _whole("gpus", server.gpus, MOST_GPUS)
    for name in ("base_w", "off_w", "switch_cost_j"):
        _number(name, getattr(server, name))
    for gpu in status.foreign_gpus:
        _whole("foreign_gpus", gpu, MOST_GPUS - 1)
    _need(isinstance(status.power, PowerState), "power", status.power)
    _need(isinstance(status.drain, bool), "drain", status.drain)
    _need(isinstance(status.keep_on, bool), "keep_on", status.keep_on)
    _moment("since", status.since, missing=True)


def _need(good: bool, name: str, value: Any, what: str = "") -> None:
    if not good:
        raise InvalidInput(f"{name} is {_shown(value)}{what and ', not ' + what}")


def _shown(value: Any) -> str:
    shown = ascii(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _text(name: str, value: Any, longest: int, *, printable: bool = False) -> None:
    _need(isinstance(value, str), name, value, "a text")
    _need(len(value) <= longest, name, value, f"at most {longest} characters long")
    # A lone half of a surrogate pair is in no UTF-8, so the store cannot keep it.
    surrogate = any("\ud800" <= mark <= "\udfff" for mark in value)
    _need(not surrogate and "\0" not in value, name, value, "a text")
    _need(value.isprintable() or not printable, name, value, "printable")


def _whole(name: str, value: Any, most: int = _LARGEST_WHOLE) -> None:
    good = isinstance(value, Integral) and not isinstance(value, bool)
    _need(good and 0 <= value <= most, name, value, f"a whole number from 0 to {most}")


def _number(name: str, value: Any, *, missing: bool = False, most: float = _LARGEST_NUMBER) -> None:
    if value is None and missing:
        return
    good = isinstance(value, Real) and not isinstance(value, bool)
    good = good and math.isfinite(value) and 0 <= value <= most
    _need(good, name, value, f"a number from 0 to {most:g}")


def _moment(name: str, value: Any, *, missing: bool = False) -> None:
    if value is None and missing:
        return
    good = isinstance(value, datetime) and value.tzinfo is not None and _FIRST <= value < _LAST
    _need(good, name, value, f"a time from {_FIRST.year} to {_LAST.year}")
